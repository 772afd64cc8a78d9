"""A pool made of others: each layer's KV lies in one of them."""

from __future__ import annotations

from abc import abstractmethod

import torch

from kvplan.pools.base import KvPool, LayerBuffer, RowShapes
from kvplan.pools.write_loc import KVWriteLoc


class RoutedPool(KvPool):
    """Hands every question about a layer to the pool that holds it."""

    @abstractmethod
    def part(self, layer_id: int) -> KvPool:
        """The pool that holds a layer; refused for a layer without KV here."""

    def layer_buffers(self, layer_id: int) -> list[LayerBuffer]:
        return self.part(layer_id).layer_buffers(layer_id)

    def row_shapes(self, layer_id: int) -> RowShapes:
        return self.part(layer_id).row_shapes(layer_id)

    def set_kv_buffer(
        self, layer_id: int, loc: KVWriteLoc, k: torch.Tensor, v: torch.Tensor | None = None
    ) -> None:
        self.part(layer_id).set_kv_buffer(layer_id, loc, k, v)

    def get_key(self, layer_id: int) -> torch.Tensor:
        return self.part(layer_id).get_key(layer_id)

    def get_value(self, layer_id: int) -> torch.Tensor:
        return self.part(layer_id).get_value(layer_id)

    def read(self, layer_id: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        return self.part(layer_id).read(layer_id, slots)
