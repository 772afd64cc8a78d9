"""States that live in the same slots: whatever happens to a slot happens to all of them."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from kvplan.errors import PoolError
from kvplan.pools.base import PoolTensor


class SlotState(Protocol):
    """A state with one entry a slot; `slots` are (num_slots,) int64, slot 0 is padding."""

    def reset_slots(self, slots: torch.Tensor) -> None:
        """As if nothing had ever been there."""

    def copy_slots(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Slot source[i] over slot target[i]."""

    def save_slots(self, slots: torch.Tensor) -> Any:
        """A copy in host memory."""

    def load_slots(self, saved: Any, slots: torch.Tensor) -> None:
        """What `save_slots` returned, into slots that need not be the same."""

    def tensors(self) -> list[PoolTensor]:
        """Every tensor of the state, views marked."""


class SlotStates:
    """The recurrent state and its siblings: a slot never changes its owner with a stale one."""

    def __init__(self, *states: SlotState) -> None:
        self._states = list(states)

    def register(self, state: SlotState) -> None:
        """Let a sibling travel along from here on."""
        self._states.append(state)

    def reset_slots(self, slots: torch.Tensor) -> None:
        for state in self._states:
            state.reset_slots(slots)

    def copy_slots(self, source: torch.Tensor, target: torch.Tensor) -> None:
        if source.shape != target.shape:
            raise PoolError(f"{source.numel()} state slots copied to {target.numel()}")
        for state in self._states:
            state.copy_slots(source, target)

    def save_slots(self, slots: torch.Tensor) -> list[Any]:
        return [state.save_slots(slots) for state in self._states]

    def load_slots(self, saved: list[Any], slots: torch.Tensor) -> None:
        if len(saved) != len(self._states):
            raise PoolError(
                f"a host copy of {len(saved)} states for {len(self._states)}",
                hint="register every sibling before the first copy",
            )
        for state, part in zip(self._states, saved, strict=True):
            state.load_slots(part, slots)

    def tensors(self) -> list[PoolTensor]:
        return [entry for state in self._states for entry in state.tensors()]
