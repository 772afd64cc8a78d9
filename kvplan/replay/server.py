"""What of a launch the scheduling model asks about."""

from __future__ import annotations

from typing import Literal

import msgspec

from kvplan.errors import InputError


class SlidingPool(msgspec.Struct, frozen=True, kw_only=True):
    """The second pool of a model whose layers differ in reach: window and capacity in tokens."""

    window: int
    num_tokens: int


class StatePool(msgspec.Struct, frozen=True, kw_only=True):
    """Slots of recurrent state, and where states are kept for the prefix cache.

    A prompt's state is kept at multiples of `grid` tokens from where a part began, a decoding
    request's at multiples of `interval`; without tracking slots wherever it stands.
    """

    num_slots: int
    tracking_slots: int = 0
    grid: int = 1
    interval: int = 1

    @property
    def slots_per_request(self) -> int:
        """Its own state and the tracking slots."""
        return 1 + self.tracking_slots


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """Drafting: slots that one step may take of a request, and tokens that it is assumed to bring.

    Each step reserves twice what it may take, since its result comes after the next launch.
    """

    alloc_len: int
    accept_len: float

    def __post_init__(self) -> None:
        if not 1 <= self.accept_len <= self.alloc_len:
            raise InputError(
                f"an acceptance of {self.accept_len} tokens a step",
                hint=f"from 1 to the {self.alloc_len} that a step may take",
            )

    @property
    def reserve(self) -> int:
        """Tokens that a decode step reserves beyond the committed ones."""
        return 2 * self.alloc_len


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """Capacities and scheduler settings of one replica; sizes in tokens.

    `num_tokens` is what the KV pool holds beside its padding page, `num_rows` the lines of
    `req_to_token` and `row_width` the positions of each. `chunked_prefill_size` is None where prompts are never cut; where they are,
    `mixed_chunk` lets running requests decode in the same step.
    """

    page_size: int
    num_tokens: int
    num_rows: int
    row_width: int
    max_running_requests: int
    context_len: int
    chunked_prefill_size: int | None
    max_prefill_tokens: int = 16384
    prefix_cache: bool = True
    eviction_policy: str = "lru"
    schedule_policy: Literal["fcfs", "lpm"] = "fcfs"
    conservativeness: float = 1.0
    overlap: bool = True
    sliding: SlidingPool | None = None
    states: StatePool | None = None
    speculation: Speculation | None = None
    mixed_chunk: bool = False

    def __post_init__(self) -> None:
        if self.sliding is not None and self.states is not None:
            raise InputError(
                "a sliding pool beside recurrent states is not modelled",
                hint="'kvplan size' says what both hold",
            )
        if self.mixed_chunk and self.speculation is not None:
            raise InputError(
                "mixed chunks together with speculation are not modelled",
                hint="leave --enable-mixed-chunk out of the launch",
            )
