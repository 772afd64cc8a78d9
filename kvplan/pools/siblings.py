"""States beside the recurrent one, in the same slots: short-conv windows and n-gram contexts."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvplan.errors import PoolError
from kvplan.pools.base import LayerBuffer, PoolTensor, spans
from kvplan.pools.slot_tensors import SlotTensor
from kvplan.pools.storage import Storage


class ShortConvState:
    """Conv windows (layers, slots + 1, channels, width) of layers with a short convolution beside."""

    def __init__(
        self,
        *,
        slots: int,
        layer_ids: Sequence[int],
        shape: tuple[int, int],
        dtype: torch.dtype,
        storage: Storage,
        running: int = 0,
        draft_tokens: int = 0,
    ) -> None:
        self.layer_ids = tuple(layer_ids)
        self._local = {layer_id: index for index, layer_id in enumerate(self.layer_ids)}
        layers = len(self.layer_ids)
        self._windows = storage.zeros((layers, slots + 1, *shape), dtype)
        self._snapshots: torch.Tensor | None = None
        if draft_tokens:
            self._snapshots = storage.zeros((layers, running + 1, draft_tokens, *shape), dtype)

    def windows(self, layer_id: int) -> torch.Tensor:
        """One layer's windows over all slots."""
        if layer_id not in self._local:
            raise PoolError(
                f"layer {layer_id} has no short convolution",
                hint=f"its layers are {spans(self.layer_ids)}",
            )
        return self._windows[self._local[layer_id]]

    def slot_tensors(self) -> list[SlotTensor]:
        """The windows, by slot along axis 1."""
        return [SlotTensor("short_conv", self._windows, 1, snapshots=self._snapshots)]

    def tensors(self) -> list[PoolTensor]:
        """Windows and snapshots."""
        return listed("short_conv", self.layer_ids, self._windows, self._snapshots)

    def layer_buffers(self) -> list[LayerBuffer]:
        """Every layer's windows, one row a slot."""
        return [LayerBuffer("short_conv", windows, 1) for windows in self._windows]


class NgramState:
    """The last tokens of each slot's request, int64 (slots + 1, context_len); blank is eos."""

    def __init__(
        self,
        *,
        slots: int,
        context_len: int,
        eos_token_id: int,
        storage: Storage,
        running: int = 0,
        draft_tokens: int = 0,
    ) -> None:
        self.eos_token_id = eos_token_id
        self._context = storage.zeros((slots + 1, context_len), torch.int64)
        self._context.fill_(eos_token_id)
        self._snapshots: torch.Tensor | None = None
        if draft_tokens:
            shape = (running + 1, draft_tokens, context_len)
            self._snapshots = storage.zeros(shape, torch.int64)
            self._snapshots.fill_(eos_token_id)

    def context(self, slots: torch.Tensor) -> torch.Tensor:
        """Contexts (slots, context_len) of some slots."""
        return self._context[slots]

    def set_context(self, slots: torch.Tensor, tokens: torch.Tensor) -> None:
        """Replace some slots' contexts by tokens (slots, context_len)."""
        if tokens.shape != (len(slots), self._context.shape[1]):
            raise PoolError(
                f"contexts are {(len(slots), self._context.shape[1])} tokens, not {tuple(tokens.shape)}"
            )
        self._context[slots] = tokens.to(torch.int64)

    def slot_tensors(self) -> list[SlotTensor]:
        """The contexts, by slot along axis 0."""
        return [SlotTensor("ngram", self._context, 0, self.eos_token_id, self._snapshots)]

    def tensors(self) -> list[PoolTensor]:
        """Contexts and snapshots."""
        return listed("ngram", (), self._context, self._snapshots)

    def layer_buffers(self) -> list[LayerBuffer]:
        """The contexts, one row a slot."""
        return [LayerBuffer("ngram", self._context, 1)]


def listed(
    name: str, layer_ids: tuple[int, ...], tensor: torch.Tensor, snapshots: torch.Tensor | None
) -> list[PoolTensor]:
    """A state's own tensor and its snapshots."""
    found = [PoolTensor(name, layer_ids, tensor, is_view=False)]
    if snapshots is not None:
        found.append(PoolTensor(f"snapshot_{name}", layer_ids, snapshots, is_view=False))
    return found
