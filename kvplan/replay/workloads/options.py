"""What a user may say about a workload file that the file itself does not."""

from __future__ import annotations

import msgspec

from kvplan.errors import InputError
from kvplan.replay.workloads.arrivals import LEAST_RATE
from kvplan.replay.workloads.clock import NS_PER
from kvplan.replay.workloads.rows import MAX_TOKENS


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Choices for reading; None leaves a format's own default.

    `request_rate` (per second, `inf`: all at once) and `output_len` supply arrivals and answers
    where a format has none; `seed` draws those arrivals. `prefix_only` says that hash ids cover
    less than the prompts on purpose.
    """

    skip_bad_rows: bool = False
    block_size: int | None = None
    prefix_only: bool = False
    time_unit: str | None = None
    request_rate: float | None = None
    output_len: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.block_size is not None and self.block_size < 1:
            raise InputError(f"a block size of {self.block_size} tokens", hint="1 or more")
        if self.time_unit is not None and self.time_unit not in NS_PER:
            raise InputError(
                f"unknown time unit '{self.time_unit}'", hint=f"one of: {', '.join(NS_PER)}"
            )
        if self.request_rate is not None and not self.request_rate >= LEAST_RATE:
            raise InputError(
                f"a request rate of {self.request_rate}",
                hint=f"requests per second, {LEAST_RATE:f} or more, or inf",
            )
        if self.output_len is not None and not 0 <= self.output_len <= MAX_TOKENS:
            raise InputError(
                f"--output-len {self.output_len} is no number of tokens of an answer",
                hint=f"0 to {MAX_TOKENS}",
            )

    @property
    def drawn_seed(self) -> int:
        """Seed of the arrivals that `request_rate` draws."""
        return self.seed or 0

    def given(self) -> list[str]:
        """Flags of the choices that were made, for formats that cannot honour them."""
        made = {
            "--block-size": self.block_size,
            "--prefix-only": self.prefix_only or None,
            "--time-unit": self.time_unit,
            "--request-rate": self.request_rate,
            "--output-len": self.output_len,
            "--seed": self.seed,
        }
        return [flag for flag, value in made.items() if value is not None]
