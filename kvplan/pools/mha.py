"""Multi-head and grouped-query caches: K and V apart, or K alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvplan.errors import PoolError
from kvplan.pools.base import RowShapes
from kvplan.pools.leaf import LeafPool, converted, put, take
from kvplan.pools.storage import Storage


class KOnlyPool(LeafPool):
    """K alone, (slots, heads, head_dim) a layer: for layers whose value is never read."""

    def __init__(
        self,
        *,
        size: int,
        page_size: int,
        layer_ids: Sequence[int],
        num_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        storage: Storage,
        requires_physical: bool = False,
    ) -> None:
        super().__init__(
            size=size,
            page_size=page_size,
            layer_ids=layer_ids,
            dtype=dtype,
            storage=storage,
            requires_physical=requires_physical,
        )
        self.num_heads = num_heads
        self.head_dim = head_dim
        self._k = self.add("k", (num_heads, head_dim), self.store_dtype)

    def row_shapes(self, layer_id: int) -> RowShapes:
        self.index(layer_id)
        return RowShapes((self.num_heads, self.head_dim), None)

    def write(
        self,
        index: int,
        slots: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor | None,  # noqa: ARG002
    ) -> None:
        put(self._k[index], slots, converted(k, self.dtype))

    def get_key(self, layer_id: int) -> torch.Tensor:
        return self._k[self.index(layer_id)].view(self.dtype)

    def get_value(self, layer_id: int) -> torch.Tensor:
        raise PoolError(f"layer {layer_id} keeps K alone, there is no V")

    def read(self, layer_id: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        return take(self._k[self.index(layer_id)], self.read_slots(slots), self.dtype), None


class MhaPool(KOnlyPool):
    """K (slots, heads, head_dim) and V (slots, heads, v_head_dim) a layer."""

    def __init__(
        self,
        *,
        size: int,
        page_size: int,
        layer_ids: Sequence[int],
        num_heads: int,
        head_dim: int,
        v_head_dim: int | None = None,
        dtype: torch.dtype,
        storage: Storage,
        requires_physical: bool = False,
    ) -> None:
        super().__init__(
            size=size,
            page_size=page_size,
            layer_ids=layer_ids,
            num_heads=num_heads,
            head_dim=head_dim,
            dtype=dtype,
            storage=storage,
            requires_physical=requires_physical,
        )
        self.v_head_dim = head_dim if v_head_dim is None else v_head_dim
        self._v = self.add("v", (num_heads, self.v_head_dim), self.store_dtype)

    def row_shapes(self, layer_id: int) -> RowShapes:
        self.index(layer_id)
        return RowShapes((self.num_heads, self.head_dim), (self.num_heads, self.v_head_dim))

    def write(
        self, index: int, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor | None
    ) -> None:
        assert v is not None
        stored_v = converted(v, self.dtype)  # both convert before either is written
        put(self._k[index], slots, converted(k, self.dtype))
        put(self._v[index], slots, stored_v)

    def get_value(self, layer_id: int) -> torch.Tensor:
        return self._v[self.index(layer_id)].view(self.dtype)

    def read(self, layer_id: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        k, _ = super().read(layer_id, slots)
        return k, take(self._v[self.index(layer_id)], slots, self.dtype)
