"""Request rows of models with recurrent state: each request owns a state slot and tracking slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from kvplan.allocators.slots import StateSlotAllocator
from kvplan.errors import PoolError
from kvplan.pools.base import PoolTensor
from kvplan.pools.recurrent import StatePool
from kvplan.pools.rows import RequestRows, RowHolder
from kvplan.pools.storage import Storage


@dataclass(slots=True)
class Tracking:
    """Slots into which a request's state is copied in turn, for the prefix cache to take over.

    `slots` is (width,) int64, -1 where `empty`; `next` is written next, `last` was written last.
    """

    slots: Tensor
    empty: list[bool]
    next: int
    last: int


class StateHolder(RowHolder, Protocol):
    """What the pool reads and writes of a request with recurrent state."""

    state_slot: Tensor | None  # (1,) int64; a prefix cache may have given one before the row
    tracking: Tracking | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingPlan:
    """Tracking slots of a request: `width` places, `initial` of them filled from the start.

    Overlapped scheduling writes two in turn, plain scheduling one; a lazy strategy starts with
    one and takes the second where it is needed.
    """

    width: int
    initial: int

    @classmethod
    def of(cls, *, extra_buffer: bool, overlap: bool, lazy: bool = False) -> TrackingPlan:
        """The places of a strategy; without the extra buffer there are none."""
        if not extra_buffer:
            return cls(width=0, initial=0)
        width = 2 if overlap else 1
        return cls(width=width, initial=1 if lazy else width)


def decode_state_slots(slots: int, num_rows: int, tracking: TrackingPlan) -> int:
    """State slots of a decode node: never fewer than all its rows can ask for."""
    return max(slots, num_rows * (1 + tracking.initial))


class HybridRequestRows(RequestRows):
    """Rows, the state slots of their requests, and the maps from a row to its slots.

    `state_slot_of_row` is int32 (rows + 1,), `tracking_slots_of_row` int64 (rows + 1, width). A
    slot is blanked with all its siblings when it is handed out, so no owner sees the last one's.
    """

    def __init__(
        self,
        size: int,
        max_context_len: int,
        *,
        storage: Storage,
        states: StatePool,
        tracking: TrackingPlan,
        pre_alloc_rows: int = 0,
        state_slots: StateSlotAllocator | None = None,
    ) -> None:
        """`state_slots` is given where the states share a buffer with other pools."""
        super().__init__(size, max_context_len, storage=storage, pre_alloc_rows=pre_alloc_rows)
        self.states = states
        self.state_slots = state_slots or StateSlotAllocator(states.size, device=storage.device)
        self.tracking = tracking
        self.state_slot_of_row = storage.zeros((self.num_rows + 1,), torch.int32)
        self.tracking_slots_of_row = (
            storage.zeros((self.num_rows + 1, tracking.width), torch.int64)
            if tracking.width
            else None
        )

    def layer_index(self, layer_id: int) -> int:
        """The place of a layer among the linear ones; refused for a layer without state."""
        return self.states.index(layer_id)

    def alloc(self, requests: Sequence[StateHolder]) -> list[int] | None:  # type: ignore[override]  # requests of these rows own states too
        """A row, a state slot and tracking slots for each request that lacks them.

        None when rows or state slots are too few: no request then gets anything.
        """
        fresh = [request for request in requests if request.state_slot is None]
        untracked = [
            request for request in requests if self.tracking.width and request.tracking is None
        ]
        need = len(fresh) + len(untracked) * self.tracking.initial
        if need > self.state_slots.available_size():
            return None
        rows = super().alloc(requests)
        if rows is None:
            return None
        slots = self.state_slots.alloc(need)
        assert slots is not None, "the slots were counted before"
        if need:
            self.states.reset_slots(self.state_slots.to_physical(slots))
        for request in requests:
            if request.state_slot is None:
                request.state_slot, slots = slots[:1], slots[1:]
            if self.tracking.width and request.tracking is None:
                initial = self.tracking.initial
                request.tracking, slots = self._track(slots[:initial]), slots[initial:]
        self._write_maps(rows, requests)
        return rows

    def free_state(self, request: StateHolder, *, keep: int | None = None) -> Tensor | None:
        """Give a request's state slot and tracking slots back, while it still has its row.

        Tracking place `keep` stays out and is returned, (1,): the prefix cache has it now.
        """
        if request.state_slot is None:
            raise PoolError(
                f"the state of row {request.row} is freed twice",
                hint="free it once, before the row",
            )
        tracking = request.tracking
        places = range(len(tracking.empty)) if tracking is not None else range(0)
        if keep is not None and (keep not in places or tracking is None or tracking.empty[keep]):
            raise PoolError(
                f"row {request.row} keeps tracking place {keep}, which holds no slot",
                hint=f"it has {len(places)} places",
            )
        going = [request.state_slot]
        kept = None
        if tracking is not None:
            kept = None if keep is None else tracking.slots[keep : keep + 1].clone()
            going += [
                tracking.slots[place : place + 1]
                for place in places
                if place != keep and not tracking.empty[place]
            ]
        self.state_slots.free(torch.cat(going))
        if request.row is not None:
            self._forget([request.row])
        request.state_slot, request.tracking = None, None
        return kept

    def other_place(self, place: int) -> int:
        """The tracking place that comes after one."""
        return (place + 1) % self.tracking.width

    def set_tracking_slot(self, request: StateHolder, place: int, slot: Tensor | None) -> None:
        """Fill a tracking place with a slot (1,) of the state slots, or empty it."""
        tracking = self._tracking_of(request)
        if not 0 <= place < self.tracking.width:
            raise PoolError(
                f"row {request.row} has no tracking place {place}",
                hint=f"places are 0 to {self.tracking.width - 1}",
            )
        if slot is None:
            tracking.slots[place].fill_(-1)
        else:
            tracking.slots[place] = slot[0]
        tracking.empty[place] = slot is None
        assert self.tracking_slots_of_row is not None
        self.tracking_slots_of_row[request.row] = tracking.slots

    def donate_tracking_slot(self, request: StateHolder, new_slot: Tensor) -> Tensor:
        """The slot (1,) written last, for the prefix cache to own; `new_slot` takes its place."""
        tracking = self._tracking_of(request)
        if tracking.empty[tracking.last]:
            raise PoolError(f"row {request.row} has not tracked a state yet")
        donated = tracking.slots[tracking.last : tracking.last + 1].clone()
        self.set_tracking_slot(request, tracking.last, new_slot)
        return donated

    def free_rows(self, rows: Sequence[int]) -> None:
        super().free_rows(rows)
        self._forget(list(rows))

    def clear(self) -> None:
        super().clear()
        self.states.reset_slots(self.state_slots.to_physical(self._held_slots()))
        self.state_slots.clear()
        self.state_slot_of_row.zero_()
        if self.tracking_slots_of_row is not None:
            self.tracking_slots_of_row.zero_()

    def _held_slots(self) -> torch.Tensor:
        """State and tracking slots that stand in a row."""
        held = [self.state_slot_of_row.long()]
        if self.tracking_slots_of_row is not None:
            held.append(self.tracking_slots_of_row.flatten())
        slots: torch.Tensor = torch.unique(torch.cat(held))
        return slots[slots > 0]

    def tensors(self) -> list[PoolTensor]:
        maps = [PoolTensor("state_slot_of_row", (), self.state_slot_of_row, is_view=False)]
        if self.tracking_slots_of_row is not None:
            tracked = self.tracking_slots_of_row
            maps.append(PoolTensor("tracking_slots_of_row", (), tracked, is_view=False))
        return super().tensors() + maps

    def verify_accounting(self) -> list[str]:
        found = super().verify_accounting() + self.state_slots.verify_accounting()
        tables = [self.state_slot_of_row.long()]
        if self.tracking_slots_of_row is not None:
            tables.append(self.tracking_slots_of_row.flatten())
        mapped = torch.cat(tables)
        mapped = mapped[mapped > 0]
        slots, counts = torch.unique(mapped, return_counts=True)
        found += [f"state slot {slot} has two owners" for slot in slots[counts > 1].tolist()]
        return found

    def _track(self, slots: Tensor) -> Tracking:
        """Tracking with the first places filled; the first one is written first."""
        places = slots.new_full((self.tracking.width,), -1)
        places[: slots.numel()] = slots
        filled = slots.numel()
        last = 0 if filled < self.tracking.width else self.other_place(0)
        return Tracking(
            slots=places,
            empty=[place >= filled for place in range(self.tracking.width)],
            next=0,
            last=last,
        )

    def _tracking_of(self, request: StateHolder) -> Tracking:
        if request.tracking is None or request.row is None:
            raise PoolError(
                "a request without a row or tracking slots tracks no state",
                hint="alloc its row first, with an extra buffer",
            )
        return request.tracking

    def _forget(self, rows: list[int]) -> None:
        """Let rows point at the padding slot."""
        self.state_slot_of_row[rows] = 0
        if self.tracking_slots_of_row is not None:
            self.tracking_slots_of_row[rows] = 0

    def _write_maps(self, rows: Sequence[int], requests: Sequence[StateHolder]) -> None:
        if not rows:
            return
        at = torch.tensor(list(rows), device=self.storage.device)
        states = [request.state_slot for request in requests if request.state_slot is not None]
        self.state_slot_of_row[at] = torch.cat(states).int()
        if self.tracking_slots_of_row is not None:
            tracked = [request.tracking.slots for request in requests if request.tracking]
            self.tracking_slots_of_row[at] = torch.stack(tracked)
