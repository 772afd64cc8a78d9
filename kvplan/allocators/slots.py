"""Slots of recurrent state: one a request, and its tracking slots."""

from __future__ import annotations

import torch
from torch import Tensor

from kvplan.allocators.free_list import FreeList
from kvplan.allocators.ledger import FREE, OWNED, Ledger
from kvplan.allocators.paged import ledger_violations, list_violations
from kvplan.allocators.paging import check_ids
from kvplan.allocators.room import room_for
from kvplan.errors import PoolError


class StateSlotAllocator:
    """Slots 1 .. size from the head of a free list, given back behind it; slot 0 is the padding slot."""

    group: list[Tensor]

    def __init__(
        self, size: int, *, device: torch.device | str = "cpu", checks: bool | None = None
    ) -> None:
        self.device = torch.device(device)
        self.checks = self.device.type == "cpu" if checks is None else checks
        self.resize(size)

    def resize(self, size: int) -> None:
        """Start afresh with another number of slots."""
        if size < 0:
            raise PoolError(f"a pool of {size} state slots", hint="0 or more")
        self._start(size)

    def clear(self) -> None:
        """Take every slot back, those of an open group too."""
        self._start(self.size)

    def available_size(self) -> int:
        """Slots in the free list; those of an open group are out already."""
        return len(self.free_list)

    def alloc(self, need_size: int) -> Tensor | None:
        """Slots (need_size,) int64, or None when fewer are free.

        A single slot comes from the open group while that lasts.
        """
        if need_size < 0:
            raise PoolError(f"cannot allocate {need_size} state slots", hint="ask for 0 or more")
        if need_size == 1 and self.group:
            return self.group.pop(0)
        return self.take(need_size)

    def alloc_group_begin(self, num_requests: int) -> None:
        """Take one slot a request of a batch at once; where they aren't there, none."""
        if self.group:
            raise PoolError("a group of state slots is open already", hint="end it first")
        slots = self.alloc(num_requests)
        if slots is not None:
            self.group = [slots[at : at + 1] for at in range(num_requests)]

    def alloc_group_end(self) -> None:
        """Give back what the batch did not use."""
        unused, self.group = self.group, []
        if unused:
            self.free(torch.cat(unused))

    def free(self, index: Tensor) -> None:
        """Give slots back; they go out last."""
        check_ids("index", index)
        if not index.numel():
            return
        if self.ledger is not None:
            self.ledger.refuse_pages(index)
        self.put_back(index)

    def take(self, num_slots: int) -> Tensor | None:
        """The first free slots, or None when fewer are free."""
        if num_slots > len(self.free_list):
            return None
        slots = self.free_list.take(num_slots).clone()
        if self.ledger is not None:
            self.ledger.mark(slots, OWNED)
        return slots

    def put_back(self, slots: Tensor) -> None:
        """Put slots behind the free list."""
        if self.ledger is not None:
            self.ledger.mark(slots, FREE)
        self.free_list.put_back(slots)

    def to_physical(self, slots: Tensor) -> Tensor:
        """Where the slots' states are kept: slots of a pool of their own are physical."""
        return slots

    def free_slots(self) -> Tensor:
        """Every free slot in the order they go out."""
        return self.free_list.ids()

    def verify_accounting(self) -> list[str]:
        """What is wrong with the books; [] when they are sound."""
        slots = self.free_slots()
        found = list_violations(slots, 1, self.size)
        if not found and self.ledger is not None:
            found += ledger_violations(slots, self.ledger)
        return found

    def _start(self, size: int) -> None:
        """All slots free; where the device has no room all stays as it was."""
        with room_for(f"{size} state slots", self.device):
            ids = torch.arange(1, size + 1, dtype=torch.int64, device=self.device)
            free_list = FreeList(ids)
            ledger = Ledger(size, 1, self.device) if self.checks else None
        self.size, self.free_list, self.ledger = size, free_list, ledger
        self.group = []
