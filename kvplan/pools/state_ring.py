"""Compression state of DeepSeek-V4: rings of running sums, by request row or by sliding page."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvplan.pools.base import PoolTensor
from kvplan.pools.storage import Storage
from kvplan.units import ceil_page


class StateRing:
    """float32 (slots, 2 * width) a layer: a kv half and a score half.

    Ring i, of `ring` slots, belongs to request row i or to sliding page i. The last slot stays
    empty (kv 0, score -inf): slot -1 reads as nothing.
    """

    def __init__(
        self,
        *,
        name: str,
        slots: int,
        ring: int,
        ratio: int,
        width: int,
        layer_ids: Sequence[int],
        dtype: torch.dtype,
        storage: Storage,
    ) -> None:
        self.name = name
        self.ring = ring
        self.width = width
        self.num_slots = ceil_page(slots + ring + 1, ratio)
        self.layer_ids = tuple(layer_ids)
        self._states = {
            layer_id: storage.zeros((self.num_slots, 2 * width), dtype)
            for layer_id in self.layer_ids
        }
        for state in self._states.values():
            self._blank(state[-1])

    def slots_of_positions(self, rows: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Ring slots of tokens by request row; -1 for a negative position."""
        slots = rows * self.ring + positions % self.ring
        return slots.masked_fill(positions < 0, -1)

    def slots_of_window(self, sliding_slots: torch.Tensor, page_size: int) -> torch.Tensor:
        """Ring slots of tokens by sliding page; -1 for a negative slot."""
        slots = sliding_slots // page_size * self.ring + sliding_slots % self.ring
        return slots.masked_fill(sliding_slots < 0, -1)

    def write(self, layer_id: int, slots: torch.Tensor, state: torch.Tensor) -> None:
        """Store state (tokens, 2 * width); what goes to slot -1 is dropped."""
        buffer = self._states[layer_id]
        buffer[slots] = state.to(buffer.dtype)
        self._blank(buffer[-1])

    def read(self, layer_id: int, slots: torch.Tensor) -> torch.Tensor:
        """State (tokens, 2 * width) at ring slots."""
        return self._states[layer_id][slots]

    def reset(self, rings: torch.Tensor) -> None:
        """Empty whole rings, as must be done when a row or page changes its owner."""
        lanes = torch.arange(self.ring, device=rings.device)
        slots = (rings[:, None] * self.ring + lanes).flatten()
        for state in self._states.values():
            state[slots] = state[-1].clone()

    def tensors(self) -> list[PoolTensor]:
        """The state of every layer."""
        return [
            PoolTensor(self.name, (layer_id,), state, is_view=False)
            for layer_id, state in self._states.items()
        ]

    def _blank(self, slot: torch.Tensor) -> None:
        slot[: self.width] = 0
        slot[self.width :] = float("-inf")
