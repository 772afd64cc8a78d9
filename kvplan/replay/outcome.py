"""A finished (or stopped) replay with everything that was found beside its figures."""

from __future__ import annotations

import msgspec

from kvplan.replay.checks import Check, Violation
from kvplan.replay.result import ReplayResult


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one allocator operation: how many, how many tokens, and their host time in ns."""

    operation: str
    calls: int
    tokens: int
    p50_ns: int
    p99_ns: int
    total_ns: int


class ReserveUse(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens: the most that a request took in one decode step and may take, its longest row."""

    most_in_step: int
    most_allowed: int
    longest_row: int
    row_width: int


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """`device` is None for the accounting engine; `compiled` counts compiled kernels."""

    result: ReplayResult
    engine: str
    device: str | None = None
    kv_scale: bool = False
    rank: int = 0
    num_ranks: int = 1
    checks: tuple[Check, ...] = ()
    violation: Violation | None = None
    shrunk: int | None = None  # operations of the shortest prefix that still fails
    latencies: tuple[Latency, ...] = ()
    compiled: dict[str, int] | None = None
    reserve: ReserveUse | None = None
    wall_s: float = 0.0

    @property
    def was_stopped(self) -> bool:
        """Whether it ended early though nothing was wrong."""
        return not self.result.complete and self.violation is None
