"""Latents of DeepSeek-V4: fp8 values and a bf16 rope part in pages of bytes, scales at the tail."""

from __future__ import annotations

import torch

from kvplan.errors import PoolError
from kvplan.pools.fp8_blocks import dequantize_power_of_two, quantize_power_of_two
from kvplan.pools.latent import PagedLatentPool
from kvplan.pools.packed import PackedLayout, as_bytes
from kvplan.sizing.request_ring import SCALE_TILE

SCALE_BYTES = 8  # scales of a token: one a tile, the rest padding
ALIGN_BYTES = 576  # what a page's bytes are padded to a multiple of


class PackedLatentPool(PagedLatentPool):
    """uint8 (pages, page_bytes) a layer; the door takes k (tokens, 1, nope + rope) alone.

    A token takes nope fp8 values, rope in bf16 and 8 bytes of scales, one per 64 values:
    448 + 128 + 8. `padding_tokens` are reserved on top of the size.
    """

    def page_row(self) -> tuple[int, torch.dtype]:
        nope_dim = self.nope_dim
        if nope_dim % SCALE_TILE or nope_dim // SCALE_TILE > SCALE_BYTES:
            raise PoolError(
                f"packed latents are 1 to {SCALE_BYTES} tiles of {SCALE_TILE} values wide, not {nope_dim}"
            )
        self.layout = PackedLayout(
            page_tokens=self.page_size,
            data_bytes=nope_dim + self.rope_dim * torch.bfloat16.itemsize,
            scale_bytes=SCALE_BYTES,
            align_bytes=ALIGN_BYTES,
        )
        return self.layout.page_bytes, torch.uint8

    def write(
        self,
        index: int,
        slots: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor | None,  # noqa: ARG002
    ) -> None:
        nope, rope = k[:, 0, : self.nope_dim], k[:, 0, self.nope_dim :]
        values, scales = quantize_power_of_two(nope, SCALE_TILE)
        data = torch.cat((as_bytes(values), as_bytes(rope.to(torch.bfloat16))), dim=-1)
        padded = torch.nn.functional.pad(
            scales.view(torch.uint8), (0, SCALE_BYTES - scales.shape[-1])
        )
        self.layout.write(self._pages[index], slots, data, padded)

    def read(self, layer_id: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        pages = self._pages[self.index(layer_id)]
        data, padded = self.layout.read(pages, self.read_slots(slots))
        values = data[:, : self.nope_dim].view(torch.float8_e4m3fn)
        scales = padded[:, : self.nope_dim // SCALE_TILE].contiguous().view(torch.float8_e8m0fnu)
        rope = data[:, self.nope_dim :].contiguous().view(torch.bfloat16)
        nope = dequantize_power_of_two(values, scales)
        return torch.cat((nope, rope), dim=-1).unsqueeze(1), None
