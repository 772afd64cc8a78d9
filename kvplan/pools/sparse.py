"""MiniMax sparse attention: K and V of all layers, and a single-head index of the sparse ones."""

from __future__ import annotations

import torch

from kvplan.errors import PoolError
from kvplan.pools.base import KvPool, LayerBuffer, PoolTensor, spans
from kvplan.pools.mha import KOnlyPool
from kvplan.pools.routed import RoutedPool
from kvplan.pools.write_loc import KVWriteLoc


class SparsePool(RoutedPool):
    """`mains` hold K and V (one pool, or dense layers apart from sparse ones).

    Each sparse layer has its index in one of `indexes`: K and V, or K alone.
    """

    def __init__(self, *, mains: tuple[KvPool, ...], indexes: tuple[KOnlyPool, ...] = ()) -> None:
        self.mains = mains
        self.indexes = indexes
        parts = (*mains, *self.indexes)
        super().__init__(
            size=max(pool.size for pool in parts),
            page_size=parts[0].page_size,
            layer_ids=sorted(layer_id for pool in mains for layer_id in pool.layer_ids),
            storage=parts[0].storage,
        )

    def part(self, layer_id: int) -> KvPool:
        self.index(layer_id)
        return next(pool for pool in self.mains if layer_id in pool.layer_ids)

    def index_part(self, layer_id: int) -> KOnlyPool:
        """The pool of a sparse layer's index; refused for a dense layer."""
        for pool in self.indexes:
            if layer_id in pool.layer_ids:
                return pool
        sparse = sorted(each for pool in self.indexes for each in pool.layer_ids)
        raise PoolError(
            f"layer {layer_id} is dense and has no index",
            hint=f"sparse layers are {spans(sparse)}",
        )

    def set_index(
        self, layer_id: int, loc: KVWriteLoc, k: torch.Tensor, v: torch.Tensor | None = None
    ) -> None:
        """Write a sparse layer's index, (tokens, 1, index_head_dim) each; v only where it is kept."""
        self.index_part(layer_id).set_kv_buffer(layer_id, loc, k, v)

    def read_index(
        self, layer_id: int, slots: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """A sparse layer's index at some slots."""
        return self.index_part(layer_id).read(layer_id, slots)

    def parts(self) -> dict[str, list[PoolTensor]]:
        *dense, main = self.mains
        own = [entry for pool in dense for entry in pool.tensors()]
        indexes = [
            entry._replace(name=f"index_{entry.name}")
            for pool in self.indexes
            for entry in pool.tensors()
        ]
        parts = {"kv": main.tensors(), "index": indexes}
        return {"dense": own} | parts if own else parts

    def layer_buffers(self, layer_id: int) -> list[LayerBuffer]:
        indexes = [
            buffer._replace(name=f"index_{buffer.name}")
            for pool in self.indexes
            if layer_id in pool.layer_ids
            for buffer in pool.layer_buffers(layer_id)
        ]
        return super().layer_buffers(layer_id) + indexes
