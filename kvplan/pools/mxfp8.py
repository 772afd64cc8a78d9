"""MXFP8 caches: float8_e4m3fn K and V with a power-of-two scale for every 32 values."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvplan.errors import PoolError
from kvplan.pools.base import RowShapes
from kvplan.pools.fp8_blocks import dequantize_power_of_two, quantize_power_of_two
from kvplan.pools.leaf import LeafPool, put, take
from kvplan.pools.storage import Storage

BLOCK = 32
TILED_PAGE = 128  # page size at which a page's scales are stored as one tile


class Mxfp8Pool(LeafPool):
    """K, V (slots, heads, dim) and scales: (slots, heads, dim // 32), or tiled at a page of 128.

    A tile is one row a page, (heads, 32, 4, dim // 32): token offset o of the page lies at
    [o % 32, o // 32].
    """

    def __init__(
        self,
        *,
        size: int,
        page_size: int,
        layer_ids: Sequence[int],
        num_heads: int,
        head_dim: int,
        v_head_dim: int | None = None,
        storage: Storage,
    ) -> None:
        self.head_dim = head_dim
        self.v_head_dim = head_dim if v_head_dim is None else v_head_dim
        for name, dim in (("head_dim", head_dim), ("v_head_dim", self.v_head_dim)):
            if dim % BLOCK:
                raise PoolError(f"MXFP8 needs a {name} that {BLOCK} divides, it is {dim}")
        super().__init__(
            size=size,
            page_size=page_size,
            layer_ids=layer_ids,
            dtype=torch.float8_e4m3fn,
            storage=storage,
        )
        self.store_dtype = torch.float8_e4m3fn
        self.num_heads = num_heads
        self.tiled = page_size == TILED_PAGE
        if not self.tiled:
            self.no_host_form = f"MXFP8 has a host form at page size {TILED_PAGE} alone"
        self._k = self.add("k", (num_heads, head_dim), self.store_dtype)
        self._v = self.add("v", (num_heads, self.v_head_dim), self.store_dtype)
        self._k_scale = self.add_scales("k_scale", head_dim)
        self._v_scale = self.add_scales("v_scale", self.v_head_dim)

    def add_scales(self, name: str, dim: int) -> list[torch.Tensor]:
        """Scale buffers of one side."""
        if not self.tiled:
            return self.add(name, (self.num_heads, dim // BLOCK), torch.float8_e8m0fnu)
        tile = (self.num_heads, BLOCK, TILED_PAGE // BLOCK, dim // BLOCK)
        return self.add(name, tile, torch.float8_e8m0fnu, rows_per_page=1)

    def row_shapes(self, layer_id: int) -> RowShapes:
        self.index(layer_id)
        return RowShapes((self.num_heads, self.head_dim), (self.num_heads, self.v_head_dim))

    def write(
        self, index: int, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor | None
    ) -> None:
        assert v is not None
        for values, data, scales in (
            (k, self._k[index], self._k_scale[index]),
            (v, self._v[index], self._v_scale[index]),
        ):
            quantized, factors = quantize_power_of_two(values, BLOCK)
            put(data, slots, quantized)
            self._put_scales(scales, slots, factors)

    def read(self, layer_id: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        index, slots = self.index(layer_id), self.read_slots(slots)
        k, v = (
            dequantize_power_of_two(
                take(data[index], slots, self.dtype), self._take_scales(scales[index], slots)
            )
            for data, scales in ((self._k, self._k_scale), (self._v, self._v_scale))
        )
        return k, v

    def get_key(self, layer_id: int) -> torch.Tensor:
        return self._k[self.index(layer_id)]

    def get_value(self, layer_id: int) -> torch.Tensor:
        return self._v[self.index(layer_id)]

    def get_scales(self, layer_id: int) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V scales as they lie."""
        index = self.index(layer_id)
        return self._k_scale[index], self._v_scale[index]

    def _put_scales(self, buffer: torch.Tensor, slots: torch.Tensor, scales: torch.Tensor) -> None:
        if not self.tiled:
            return put(buffer, slots, scales)
        page, row, column = tile_position(slots)
        buffer.view(torch.uint8)[page, :, row, column] = scales.view(torch.uint8)
        return None

    def _take_scales(self, buffer: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        if not self.tiled:
            return take(buffer, slots, torch.float8_e8m0fnu)
        page, row, column = tile_position(slots)
        taken = buffer.view(torch.uint8)[page, :, row, column]
        return taken.view(torch.float8_e8m0fnu)


def tile_position(slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Page, row and column of each slot's scales in the tiles."""
    offset = slots % TILED_PAGE
    return slots // TILED_PAGE, offset % BLOCK, offset // BLOCK
