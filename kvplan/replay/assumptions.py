"""What no trace records and a replay has to assume: wishes, step times, acceptance."""

from __future__ import annotations

from typing import Literal

import msgspec

from kvplan.errors import InputError
from kvplan.replay.requests import Request
from kvplan.units import NS_PER_S

UNLIMITED = 1 << 30  # what a client without a wish gets before clipping


class Assumptions(msgspec.Struct, frozen=True, kw_only=True):
    """`max_new` is what clients ask for: exactly what they got (`exact`), a number, or as much as

    the context holds (`context`). A decode step takes `decode_ns`; a prefill step no less, and
    as long as its tokens need at `prefill_tokens_per_s`.
    """

    max_new: int | Literal["exact", "context"] = "exact"
    decode_ns: int = 20_000_000
    prefill_tokens_per_s: int = 20_000

    def __post_init__(self) -> None:
        if isinstance(self.max_new, int) and self.max_new < 1:
            raise InputError(f"a max_new of {self.max_new} tokens", hint="1 or more")
        if self.decode_ns < 1 or self.prefill_tokens_per_s < 1:
            raise InputError("step times must be positive", hint="see --tpot and --prefill-rate")

    def wish(self, request: Request) -> int:
        """New tokens that the client asked for, before the engine clips them."""
        if request.max_new is not None:
            return request.max_new
        if self.max_new == "exact":
            return request.output_len or 1
        return UNLIMITED if self.max_new == "context" else self.max_new

    def prefill_ns(self, num_tokens: int) -> int:
        """Duration of a step that computes so many prompt tokens."""
        computing_ns = num_tokens * NS_PER_S // self.prefill_tokens_per_s
        return computing_ns if computing_ns > self.decode_ns else self.decode_ns
