"""The scheduling model's memory over a full and a sliding pool."""

from __future__ import annotations

from torch import Tensor

from kvplan.allocators.sliding import SlidingAllocator
from kvplan.pools.rows import RequestRows
from kvplan.replay.pools.memory import PoolMemory


class SlidingPoolMemory(PoolMemory):
    """Rows hold full slots; the allocator maps each to its sliding slot."""

    def __init__(self, allocator: SlidingAllocator, rows: RequestRows) -> None:
        super().__init__(allocator, rows)
        self._both = allocator

    @property
    def full_available(self) -> int:
        return self._both.full_available_size()

    @property
    def sliding_available(self) -> int:
        return self._both.swa_available_size()

    def free_full(self, slots: Tensor) -> None:
        self._both.free_full_segment(slots, start_pos=0)

    def free_sliding(self, slots: Tensor) -> None:
        self._both.free_swa_segment(slots, start_pos=0)

    def move_sliding(self, kept: Tensor, incoming: Tensor) -> None:
        mapping = self._both.full_to_swa
        mapping[kept] = mapping[incoming]
        mapping[incoming] = 0
