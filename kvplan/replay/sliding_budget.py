"""What a prefill pass may admit where a sliding pool has its say, too."""

from __future__ import annotations

from kvplan.replay.budget import PrefillBudget, Stop
from kvplan.replay.server import Server
from kvplan.replay.sliding_store import SlidingStore
from kvplan.units import ceil_page, floor_page


def sliding_demand(
    remaining: int, new: int, *, window: int, page_size: int, chunk: int | None
) -> int:
    """Sliding tokens that a request may hold at once: what a chunk overhangs, and its window."""
    computed = remaining if chunk is None else min(remaining, chunk)
    return max(computed - window, 0) + min(remaining + new, window) + page_size


class SlidingBudget(PrefillBudget):
    """Both pools must have room; only what never fits the sliding one makes a chunk shorter."""

    store: SlidingStore

    def __init__(self, server: Server, store: SlidingStore) -> None:
        super().__init__(server, store)
        self._pool = store.pool

    def open(self, reserved: float, num_mixed: int = 0) -> None:
        super().open(reserved, num_mixed)
        self._reserved_sliding = 0

    @property
    def _sliding_left(self) -> int:
        return self.store.reachable_sliding() - self._reserved_sliding

    def verdict(self) -> Stop | None:
        return super().verdict() if self._sliding_left > 0 else Stop.NO_MEMORY

    def _room(self, remaining: int, new: int) -> int | None:
        limit = super()._room(remaining, new)
        needed = self._demand(ceil_page(remaining, self.page_size), new)
        if limit == 0 or needed < self._sliding_left:
            return limit
        if limit is None or needed < self._pool.num_tokens:
            return 0
        shorter = floor_page(self._sliding_left - self._demand(0, new), self.page_size)
        return min(limit, max(0, shorter))

    def _continuation_limit(self, chunk: int) -> int:
        return min(chunk, int(self._memory_left), self._sliding_left - self.page_size)

    def _reserve(self, paged: int, new: int) -> None:
        super()._reserve(paged, new)
        self._reserved_sliding += self._demand(paged, new)

    def _demand(self, remaining: int, new: int) -> int:
        return sliding_demand(
            remaining,
            new,
            window=self._pool.window,
            page_size=self.page_size,
            chunk=None if self._chunk is None else self._chunk - self._spent,
        )
