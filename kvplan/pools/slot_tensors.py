"""Tensors that keep something per state slot, and what can happen to a slot in all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch

from kvplan.pools.base import LayerBuffer, PoolTensor


class SlotTensor(NamedTuple):
    """A tensor with state slots along `slot_axis`; a slot without an owner is filled with `blank`.

    `snapshots`, if any, has a row per running request along slot_axis and a draft token after it.
    """

    name: str
    tensor: torch.Tensor
    slot_axis: int
    blank: int = 0
    snapshots: torch.Tensor | None = None


class Sibling(Protocol):
    """A state beside the recurrent one, addressed by the same slots."""

    def slot_tensors(self) -> list[SlotTensor]:
        """What must travel with a slot."""

    def tensors(self) -> list[PoolTensor]:
        """Every tensor of the state, views marked."""

    def layer_buffers(self) -> list[LayerBuffer]:
        """What goes to the host, one row a slot."""


class StateImage(NamedTuple):
    """Some slots' whole state on the host, in the order of the slots."""

    parts: tuple[torch.Tensor, ...]


def reset_parts(parts: Sequence[SlotTensor], slots: torch.Tensor) -> None:
    """Blank the slots."""
    for part in parts:
        part.tensor.index_fill_(part.slot_axis, slots.long(), part.blank)


def copy_parts(parts: Sequence[SlotTensor], source: torch.Tensor, target: torch.Tensor) -> None:
    """Slot source[i] over slot target[i]."""
    for part in parts:
        taken = part.tensor.index_select(part.slot_axis, source.long())
        part.tensor.index_copy_(part.slot_axis, target.long(), taken)


def save_parts(parts: Sequence[SlotTensor], slots: torch.Tensor) -> StateImage:
    """The slots' contents, copied to the host."""
    return StateImage(
        tuple(part.tensor.index_select(part.slot_axis, slots.long()).cpu() for part in parts)
    )


def load_parts(parts: Sequence[SlotTensor], image: StateImage, slots: torch.Tensor) -> None:
    """Saved contents into the slots."""
    for part, saved in zip(parts, image.parts, strict=True):
        part.tensor.index_copy_(part.slot_axis, slots.long(), saved.to(part.tensor.device))


def commit_parts(
    parts: Sequence[SlotTensor], rows: torch.Tensor, steps: torch.Tensor, slots: torch.Tensor
) -> None:
    """The snapshot after draft token steps[i] of running row rows[i] over slot slots[i]."""
    for part in parts:
        if part.snapshots is None:
            continue
        if part.slot_axis == 0:
            part.tensor[slots] = part.snapshots[rows, steps]
        else:
            part.tensor[:, slots] = part.snapshots[:, rows, steps]
