"""Latents of DeepSeek-V4: fp8 values and a bf16 rope part in pages of bytes, scales at the tail."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvplan.errors import PoolError
from kvplan.pools.base import RowShapes
from kvplan.pools.fp8_blocks import dequantize_power_of_two, quantize_power_of_two
from kvplan.pools.leaf import LeafPool
from kvplan.pools.packed import PackedLayout, as_bytes
from kvplan.pools.storage import Storage
from kvplan.units import ceil_div

TILE = 64  # values that share one power-of-two scale
SCALE_BYTES = 8  # scales of a token: one a tile, the rest padding
ALIGN_BYTES = 576  # what a page's bytes are padded to a multiple of


class PackedLatentPool(LeafPool):
    """uint8 (pages, page_bytes) a layer; the door takes k (tokens, 1, nope + rope) alone.

    A token takes nope fp8 values, rope in bf16 and 8 bytes of scales, one per 64 values:
    448 + 128 + 8. `padding_tokens` are reserved on top of the size.
    """

    def __init__(
        self,
        *,
        size: int,
        page_size: int,
        padding_tokens: int,
        layer_ids: Sequence[int],
        nope_dim: int,
        rope_dim: int,
        storage: Storage,
    ) -> None:
        if nope_dim % TILE or nope_dim // TILE > SCALE_BYTES:
            raise PoolError(
                f"packed latents are 1 to {SCALE_BYTES} tiles of {TILE} values wide, not {nope_dim}"
            )
        super().__init__(
            size=size,
            page_size=page_size,
            layer_ids=layer_ids,
            dtype=torch.float8_e4m3fn,
            storage=storage,
        )
        self.nope_dim = nope_dim
        self.rope_dim = rope_dim
        self.layout = PackedLayout(
            page_tokens=page_size,
            data_bytes=nope_dim + rope_dim * torch.bfloat16.itemsize,
            scale_bytes=SCALE_BYTES,
            align_bytes=ALIGN_BYTES,
        )
        self._pages = self.add(
            "latent",
            (self.layout.page_bytes,),
            torch.uint8,
            rows_per_page=1,
            num_rows=ceil_div(size + padding_tokens, page_size),
        )

    def row_shapes(self, layer_id: int) -> RowShapes:
        self.index(layer_id)
        return RowShapes((1, self.nope_dim + self.rope_dim), None)

    def write(
        self,
        index: int,
        slots: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor | None,  # noqa: ARG002
    ) -> None:
        nope, rope = k[:, 0, : self.nope_dim], k[:, 0, self.nope_dim :]
        values, scales = quantize_power_of_two(nope, TILE)
        data = torch.cat((as_bytes(values), as_bytes(rope.to(torch.bfloat16))), dim=-1)
        padded = torch.nn.functional.pad(
            scales.view(torch.uint8), (0, SCALE_BYTES - scales.shape[-1])
        )
        self.layout.write(self._pages[index], slots, data, padded)

    def read(self, layer_id: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        pages = self._pages[self.index(layer_id)]
        data, padded = self.layout.read(pages, self.read_slots(slots))
        values = data[:, : self.nope_dim].view(torch.float8_e4m3fn)
        scales = padded[:, : self.nope_dim // TILE].contiguous().view(torch.float8_e8m0fnu)
        rope = data[:, self.nope_dim :].contiguous().view(torch.bfloat16)
        nope = dequantize_power_of_two(values, scales)
        return torch.cat((nope, rope), dim=-1).unsqueeze(1), None

    def get_key(self, layer_id: int) -> torch.Tensor:
        return self._pages[self.index(layer_id)]

    def get_value(self, layer_id: int) -> torch.Tensor:
        return self.get_key(layer_id)
