"""What an open free group has collected."""

from __future__ import annotations

import torch
from torch import Tensor

from kvplan.errors import PoolError


class FreeGroup:
    """Frees that wait for the end of their group; what is collected is copied."""

    def __init__(self) -> None:
        self.slots: list[Tensor] = []
        self.pages: list[Tensor] = []

    def add_slots(self, slots: Tensor) -> None:
        """Slots, or pages that several frees may name."""
        self.slots.append(slots.clone())

    def add_pages(self, pages: Tensor) -> None:
        """Pages that exactly one free names."""
        self.pages.append(pages.clone())


def joined(pile: list[Tensor]) -> Tensor | None:
    """One vector of a pile, None when nothing was collected."""
    return torch.cat(pile) if pile else None


def refuse_nested(group: FreeGroup | None) -> None:
    """Refuse a free group within a free group."""
    if group is not None:
        raise PoolError("a free group is open already", hint="end it first: groups do not nest")


def refuse_closed(group: FreeGroup | None) -> FreeGroup:
    """The open free group; refuse where there is none."""
    if group is None:
        raise PoolError("no free group is open", hint="call free_group_begin first")
    return group
