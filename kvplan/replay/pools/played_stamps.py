"""Stamps of played operations: what each slot was given is remembered, since nobody knows the tokens."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from kvplan.replay import checks
from kvplan.replay.checks import Broken
from kvplan.replay.pools.doors import Door, WindowDoor
from kvplan.replay.pools.stamps import Stamper
from kvplan.replay.pools.watched import Growth, Ints, Tenancy, WatchedMemory
from kvplan.replay.workloads.operations import Side


class PlayedStamper(Stamper):
    """A stamp says who was given the slot and for which position, even when others use it, too.

    Stamps are read back before slots go back, and all of them at every audit.
    """

    def __init__(self, memory: WatchedMemory, doors: list[Door], num_slots: int) -> None:
        super().__init__(memory, doors)
        device = memory.inner.allocator.device
        self._written = torch.zeros(2, num_slots, dtype=torch.int64, device=device)
        self._in_window = self._written.clone()  # the same on the sliding side
        self._names: dict[int, str] = {}

    def opened(self, tenancy: Tenancy, prefix: list[Tensor]) -> None:  # noqa: ARG002
        self._names[tenancy.number] = tenancy.name

    def grown(self, growth: Growth) -> None:
        super().grown(growth)
        stamps = torch.from_numpy(np.stack([growth.owners(), growth.positions()]))
        slots = growth.device_slots
        self._written[:, slots] = self._in_window[:, slots] = stamps.to(slots.device)

    def moved(self, kept: Tensor, incoming: Tensor) -> None:
        self._in_window[:, kept] = self._in_window[:, incoming]

    def freed(self, slots: Tensor, side: Side) -> None:
        self._read(slots)
        if side != "sliding":
            self._written[:, slots] = self._in_window[:, slots] = 0

    def leaving(self, tenancy: Tenancy) -> None:
        """Its tokens are read when their slots go back."""

    def read_all(self) -> None:
        """Read every stamp; Broken for the first foreign one."""
        self._read(self._written[0].nonzero().flatten())

    def _numbers_of(self, tenancy: Tenancy, start: int, stop: int) -> Ints:
        return np.full(stop - start, tenancy.number, dtype=np.int64)

    def _read(self, slots: Tensor) -> None:
        for door in self._doors:
            ledger = self._in_window if isinstance(door, WindowDoor) else self._written
            there = slots[ledger[0, slots] > 0]
            owners, positions = ledger[:, there]
            foreign = (~door.intact(there, owners, positions)).nonzero().flatten()
            for at in foreign[:1].tolist():
                raise Broken(
                    checks.STAMPS,
                    f"position {int(positions[at])} does not read back what was written for it"
                    f" ({door.name})",
                    request=self._names[int(owners[at])],
                    slot=int(there[at]),
                )
        self.num_read += len(slots)
