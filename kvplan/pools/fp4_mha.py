"""FP4 caches of K and V: packed codes, and the block-16 recipe of scales."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvplan.errors import PoolError
from kvplan.pools.base import RowShapes
from kvplan.pools.fp4 import BLOCK, dequantize_block16, quantize_block16
from kvplan.pools.leaf import LeafPool, put
from kvplan.pools.storage import Storage


class Fp4Pool(LeafPool):
    """Codes uint8 (slots, heads, dim // 2) of K and V; the recipe adds its scales."""

    no_host_form = "FP4 caches have no host form"

    def __init__(
        self,
        *,
        size: int,
        page_size: int,
        layer_ids: Sequence[int],
        num_heads: int,
        head_dim: int,
        storage: Storage,
    ) -> None:
        if head_dim % BLOCK:
            raise PoolError(f"FP4 needs a head_dim that {BLOCK} divides, it is {head_dim}")
        super().__init__(
            size=size,
            page_size=page_size,
            layer_ids=layer_ids,
            dtype=torch.float4_e2m1fn_x2,
            storage=storage,
        )
        self.store_dtype = torch.uint8
        self.num_heads = num_heads
        self.head_dim = head_dim
        self._k = self.add("k", (num_heads, head_dim // 2), torch.uint8)
        self._v = self.add("v", (num_heads, head_dim // 2), torch.uint8)

    def row_shapes(self, layer_id: int) -> RowShapes:
        self.index(layer_id)
        row = (self.num_heads, self.head_dim)
        return RowShapes(row, row)

    def get_key(self, layer_id: int) -> torch.Tensor:
        return self._k[self.index(layer_id)]

    def get_value(self, layer_id: int) -> torch.Tensor:
        return self._v[self.index(layer_id)]


class Fp4Block16Pool(Fp4Pool):
    """The fp4_mx_block16 recipe: power-of-two scale bytes (slots, heads * dim // 16)."""

    def __init__(
        self,
        *,
        size: int,
        page_size: int,
        layer_ids: Sequence[int],
        num_heads: int,
        head_dim: int,
        storage: Storage,
    ) -> None:
        super().__init__(
            size=size,
            page_size=page_size,
            layer_ids=layer_ids,
            num_heads=num_heads,
            head_dim=head_dim,
            storage=storage,
        )
        row = (num_heads * head_dim // BLOCK,)
        self._k_scale = self.add("k_scale", row, torch.uint8)
        self._v_scale = self.add("v_scale", row, torch.uint8)

    def write(
        self, index: int, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor | None
    ) -> None:
        assert v is not None
        for values, codes, scales in (
            (k, self._k[index], self._k_scale[index]),
            (v, self._v[index], self._v_scale[index]),
        ):
            packed, factors = quantize_block16(values)
            put(codes, slots, packed)
            put(scales, slots, factors)

    def read(self, layer_id: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        index, slots = self.index(layer_id), self.read_slots(slots)
        return (
            dequantize_block16(self._k[index][slots], self._k_scale[index][slots]),
            dequantize_block16(self._v[index][slots], self._v_scale[index][slots]),
        )
