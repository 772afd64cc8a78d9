"""The recurrent states of a plan in a replay: slots blanked when they go out, maps from the rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from kvplan.allocators.paged import PagedAllocator
from kvplan.pools.hybrid_rows import HybridRequestRows
from kvplan.pools.recurrent import StatePool
from kvplan.replay import checks
from kvplan.replay.checks import Broken
from kvplan.replay.pools.states import StatePoolMemory
from kvplan.replay.pools.watched import Watcher
from kvplan.replay.sequence import Sequence as Request

NUM_STAMPS = 251  # bf16 has every whole number up to 256


class PlanStateMemory(StatePoolMemory):
    """KV slots, rows and state slots of a plan's own pools."""

    def __init__(self, allocator: PagedAllocator, rows: HybridRequestRows) -> None:
        super().__init__(allocator, rows, rows.state_slots)
        self.hybrid_rows = rows

    def open_row(self, sequence: Request, prefix: Sequence[Tensor]) -> None:
        super().open_row(sequence, prefix)
        self.map_states(sequence)

    def alloc_state(self, rid: str | None) -> Tensor | None:
        slots = super().alloc_state(rid)
        if slots is not None:
            self.hybrid_rows.states.reset_slots(self.states.to_physical(slots))
        return slots

    def map_states(self, sequence: Request) -> None:
        """Let a row say which slots its request has now: its own state, then the tracking slots."""
        if not sequence.states:
            return
        rows, (own, *tracking) = self.hybrid_rows, sequence.states
        rows.state_slot_of_row[sequence.row] = own[0]
        if rows.tracking_slots_of_row is not None:
            places = rows.tracking_slots_of_row[sequence.row]
            places.fill_(0)
            places[: len(tracking)] = torch.cat(tracking)


class StateBooks(Watcher):
    """Owners of state slots, and a stamp in each: no owner may find what another one left."""

    def __init__(self, memory: PlanStateMemory) -> None:
        self._pool: StatePool = memory.hybrid_rows.states
        self.memory = memory
        self.taken = np.zeros(self._pool.size + 1, dtype=np.int64)  # number of the hand-out
        self._names: list[str | None] = [None] * (self._pool.size + 1)  # whose it was last
        self._num_taken = 0

    def state_taken(self, slots: Tensor, rid: str | None) -> None:
        slot = int(slots[0])
        if not 0 < slot < len(self.taken):
            raise Broken(checks.OWNERS, f"state slot {slot} does not exist", request=rid, slot=slot)
        self._names[slot] = rid
        if self.taken[slot]:
            raise self._broken(slot, f"state slot {slot} was handed out twice")
        physical = self.memory.states.to_physical(slots)
        for part in self._pool.slot_tensors():
            held = part.tensor.index_select(part.slot_axis, physical)
            if bool((held != part.blank).any()):
                raise self._broken(slot, f"state slot {slot} still has a stale {part.name}")
        self._num_taken += 1
        self.taken[slot] = self._num_taken
        for part in self._pool.slot_tensors():
            part.tensor.index_fill_(part.slot_axis, physical, stamp_of(self._num_taken))

    def states_freed(self, slots: Tensor) -> None:
        for slot in slots.tolist():
            if not self.taken[slot]:
                raise self._broken(slot, f"state slot {slot} is given back and nobody owns it")
            self._refuse_changed(slot)
            self.taken[slot] = 0

    def findings(self, held: list[int]) -> list[Broken]:
        """Slots that are free and owned at once, or neither; `held` are those of rows and the tree."""
        size = len(self.taken)
        free = np.bincount(self.memory.states.free_slots().cpu().numpy(), minlength=size)
        owned = np.bincount(np.array(held, dtype=np.int64), minlength=size)
        wrong = np.flatnonzero(free + owned != 1)
        return [self._finding(int(slot), free, owned) for slot in wrong[wrong > 0][:3]]

    def _finding(self, slot: int, free: np.ndarray, owned: np.ndarray) -> Broken:
        if free[slot] and owned[slot]:
            return self._broken(slot, f"state slot {slot} is free and owned at once")
        if owned[slot] > 1:
            return self._broken(slot, f"state slot {slot} has {owned[slot]} owners")
        if free[slot] > 1:
            return self._broken(slot, f"state slot {slot} stands twice in the free list")
        return self._broken(slot, f"state slot {slot} is lost: neither free nor owned")

    def _refuse_changed(self, slot: int) -> None:
        physical = self.memory.states.to_physical(torch.tensor([slot], device=self._device()))
        for part in self._pool.slot_tensors():
            held = part.tensor.index_select(part.slot_axis, physical)
            if bool((held != stamp_of(int(self.taken[slot]))).any()):
                raise Broken(
                    checks.STAMPS,
                    f"state slot {slot} does not read back what its owner wrote ({part.name})",
                    request=self._names[slot],
                    slot=slot,
                )

    def _device(self) -> torch.device:
        return self._pool.storage.device

    def _broken(self, slot: int, text: str) -> Broken:
        return Broken(checks.OWNERS, text, request=self._names[slot], slot=slot)


def stamp_of(number: int) -> int:
    """What a hand-out fills its slot with."""
    return number % NUM_STAMPS + 1
