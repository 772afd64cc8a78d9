"""The scheduling model's memory with slots of recurrent state."""

from __future__ import annotations

from torch import Tensor

from kvplan.allocators.paged import PagedAllocator
from kvplan.allocators.slots import StateSlotAllocator
from kvplan.pools.rows import RequestRows
from kvplan.replay.pools.memory import PoolMemory


class StatePoolMemory(PoolMemory):
    """KV slots and rows, and state slots from an allocator of their own."""

    def __init__(
        self, allocator: PagedAllocator, rows: RequestRows, states: StateSlotAllocator
    ) -> None:
        super().__init__(allocator, rows)
        self.states = states

    @property
    def available_states(self) -> int:
        return self.states.available_size()

    def alloc_state(self, rid: str | None) -> Tensor | None:  # noqa: ARG002
        return self.states.alloc(1)

    def free_states(self, slots: Tensor) -> None:
        self.states.free(slots)
