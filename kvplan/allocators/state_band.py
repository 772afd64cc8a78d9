"""State slots of a shared buffer, with the interface of a pool of their own."""

from __future__ import annotations

import torch
from torch import Tensor

from kvplan.allocators.shared_buffer import SharedBuffer
from kvplan.allocators.slots import StateSlotAllocator
from kvplan.errors import PoolError


class StateBand(StateSlotAllocator):
    """Virtual state slots; how many are available depends on what the other pools leave.

    `size` is what an empty buffer holds.
    """

    def __init__(
        self, shared: SharedBuffer, name: str, *, device: torch.device, checks: bool | None
    ) -> None:
        self.shared = shared
        self.band = shared.bands[name]
        size = shared.most(name, limit=self.band.num_pages, empty=True)
        super().__init__(size, device=device, checks=checks)

    def resize(self, size: int) -> None:
        if size > self.shared.most(self.band.name, limit=self.band.num_pages, empty=True):
            raise PoolError(
                f"{size} state slots do not fit into {self.shared.total_bytes} shared bytes",
                hint="resize the allocator of the shared buffer",
            )
        super().resize(size)
        self.band.clear(self.band.base)

    def clear(self) -> None:
        super().clear()
        self.band.clear(self.band.base)

    def available_size(self) -> int:
        return self.shared.most(self.band.name, limit=len(self.free_list))

    def take(self, num_slots: int) -> Tensor | None:
        if num_slots > len(self.free_list):
            return None
        if not self.shared.make_room({self.band.name: num_slots}):
            return None
        slots = super().take(num_slots)
        if slots is not None:
            self.band.bind(slots)
        return slots

    def put_back(self, slots: Tensor) -> None:
        self.band.unbind(slots)
        super().put_back(slots)

    def to_physical(self, slots: Tensor) -> Tensor:
        """Physical slots of virtual ones; a padding slot stays one."""
        return self.band.translate(slots, 1)

    def verify_accounting(self) -> list[str]:
        found = super().verify_accounting()
        held = self.size - self.free_list.num_free
        if held != self.band.num_live:
            found.append(f"{held} state slots are out, {self.band.num_live} have memory")
        return found
