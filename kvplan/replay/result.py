"""What a replay came to, as one frozen value."""

from __future__ import annotations

import msgspec

from kvplan.replay.gauges import PoolUse
from kvplan.replay.server import Server
from kvplan.replay.timeline import Point


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles by nearest rank, and the largest."""

    p50: int
    p95: int
    p99: int
    max: int


class ReplayResult(msgspec.Struct, frozen=True, kw_only=True):
    """Counts in requests, tokens or steps, times in ns of the replayed clock.

    Hit and computed tokens are of first attempts; `rehit` and `recomputed` of requests that were
    retracted before, output tokens of answers that finished. `complete` is False where the replay was stopped before its end.
    """

    server: Server
    complete: bool
    pools: tuple[PoolUse, ...]
    num_requests: int = 0
    num_finished: int = 0
    num_clipped: int = 0
    num_aborted: int = 0
    num_retractions: int = 0
    first_retraction_ns: int | None = None
    rejections: dict[str, int] = {}
    hit_tokens: int = 0
    computed_tokens: int = 0
    rehit_tokens: int = 0
    recomputed_tokens: int = 0
    output_tokens: int = 0
    evicted_tokens: int = 0
    wasted_tokens: int = 0
    peak_running: int = 0
    peak_waiting: int = 0
    wait_ns: Spread
    num_steps: int
    prefill_steps: int = 0
    decode_steps: int = 0
    end_ns: int = 0
    timeline: tuple[Point, ...] = ()

    @property
    def num_rejected(self) -> int:
        """Requests that were never served, or given up because nothing could make room for them."""
        return sum(self.rejections.values()) + self.num_aborted

    @property
    def fits(self) -> bool:
        """Whether nobody was rejected or sent back to the queue."""
        return not self.num_retractions and not self.num_rejected

    @property
    def fullest(self) -> PoolUse:
        """The pool of which the highest share was used at once; rows, which are cheap, aside."""
        return max(
            (pool for pool in self.pools if pool.unit != "rows"), key=lambda pool: pool.share
        )

    @property
    def peak_occupancy(self) -> float:
        """The highest share of any pool but the rows that was used at once."""
        return self.fullest.share

    @property
    def hit_rate(self) -> float:
        """Share of the prompts' tokens that were cached, over first attempts."""
        total = self.hit_tokens + self.computed_tokens
        return self.hit_tokens / total if total else 0.0

    def agreed(self) -> dict[str, int]:
        """The figures in which two engines on the same workload must agree."""
        peaks = {f"peak {pool.name}": pool.peak for pool in self.pools}
        names = (
            *("num_requests", "num_finished", "num_clipped", "num_aborted", "num_retractions"),
            *("num_rejected", "hit_tokens", "computed_tokens", "rehit_tokens"),
            *("recomputed_tokens", "output_tokens", "evicted_tokens", "peak_running"),
            *("peak_waiting", "num_steps", "end_ns"),
        )
        return peaks | {name: getattr(self, name) for name in names}
