"""Scratch of sharded KV: prefixes of other ranks and the batch's new tokens, of one layer at a time."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from kvplan.pools.base import PoolTensor
from kvplan.pools.storage import Storage, torch_dtype
from kvplan.sizing.sharding import HALVES
from kvplan.sizing.tensor import TensorPlan


class GatherScratch:
    """Two halves alike: one is read for a layer while the next layer's is gathered.

    `rows` are the tensors of one half: K and V, or latents and index keys, of one layer.
    """

    def __init__(self, rows: Iterable[TensorPlan], *, storage: Storage) -> None:
        planned = tuple(rows)
        self._halves = tuple(
            {each.name: storage.zeros(each.shape, torch_dtype(each.dtype)) for each in planned}
            for _ in range(HALVES)
        )

    def of_layer(self, index: int) -> dict[str, torch.Tensor]:
        """The half that the index-th layer of the pool reads."""
        return self._halves[index % HALVES]

    def tensors(self) -> list[PoolTensor]:
        """Both halves."""
        return [
            PoolTensor(name, (), tensor, is_view=False)
            for half in self._halves
            for name, tensor in half.items()
        ]
