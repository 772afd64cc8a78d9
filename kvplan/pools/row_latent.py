"""Latents of DeepSeek-V4 in rows of their own, without pages to pack: bf16, or fp8 beside a rope part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from kvplan.errors import PoolError
from kvplan.pools.base import PoolTensor, raw
from kvplan.pools.fp8_blocks import dequantize_power_of_two, quantize_power_of_two
from kvplan.pools.latent import LatentPool
from kvplan.pools.leaf import Family, converted, put, take
from kvplan.pools.packed import as_bytes
from kvplan.pools.storage import Storage
from kvplan.sizing.request_ring import FP8_ROW, SCALE_COPIES, SCALE_TILE, fp8_row_used


class LatentRows(NamedTuple):
    """Rows of one layer: bf16 (rows, width), or fp8 (rows, 512) with bf16 (rows, rope_dim) beside."""

    latent: torch.Tensor
    rope: torch.Tensor | None = None

    def named(self) -> list[tuple[str, torch.Tensor]]:
        """The tensors with their names."""
        found = [("latent", self.latent)]
        return found if self.rope is None else [*found, ("rope", self.rope)]

    def part(self, first: int, end: int | None) -> LatentRows:
        """Views of some rows."""
        rope = None if self.rope is None else self.rope[first:end]
        return LatentRows(self.latent[first:end], rope)


def latent_rows(
    rows: int, *, nope_dim: int, rope_dim: int, fp8: bool, storage: Storage
) -> LatentRows:
    """Zeroed rows of one layer."""
    if not fp8:
        return LatentRows(storage.zeros((rows, nope_dim + rope_dim), torch.bfloat16))
    if nope_dim % SCALE_TILE or fp8_row_used(nope_dim) > FP8_ROW:
        raise PoolError(
            f"{nope_dim} values and their scales do not fit an fp8 row of {FP8_ROW} bytes",
            hint=f"latents are whole tiles of {SCALE_TILE} values",
        )
    return LatentRows(
        storage.zeros((rows, FP8_ROW), torch.float8_e4m3fn),
        storage.zeros((rows, rope_dim), torch.bfloat16),
    )


class RowLatentPool(LatentPool):
    """Latents by row, whose tensors may be views; the door takes k (tokens, 1, nope + rope) alone.

    An fp8 row is nope fp8 values, a power-of-two scale per 64 of them (each twice), then padding.
    """

    def __init__(
        self,
        layers: Sequence[LatentRows],
        *,
        page_size: int,
        layer_ids: Sequence[int],
        nope_dim: int,
        rope_dim: int,
        storage: Storage,
    ) -> None:
        fp8 = layers[0].rope is not None
        super().__init__(
            size=len(layers[0].latent) - page_size,
            page_size=page_size,
            layer_ids=layer_ids,
            nope_dim=nope_dim,
            rope_dim=rope_dim,
            dtype=torch.float8_e4m3fn if fp8 else torch.bfloat16,
            storage=storage,
        )
        self.layers = tuple(layers)
        names = [name for name, _ in layers[0].named()]
        by_name = [[each.named()[at][1] for each in layers] for at in range(len(names))]
        self._families = [
            Family(name, tensors, page_size) for name, tensors in zip(names, by_name, strict=True)
        ]

    def write(
        self,
        index: int,
        slots: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor | None,  # noqa: ARG002
    ) -> None:
        rows = self.layers[index]
        if rows.rope is None:
            put(rows.latent, slots, converted(k[:, 0], self.dtype))
            return
        values, scales = quantize_power_of_two(k[:, 0, : self.nope_dim], SCALE_TILE)
        twice = scales.view(torch.uint8).repeat_interleave(SCALE_COPIES, dim=-1)
        used = torch.cat((as_bytes(values), twice), dim=-1)
        raw(rows.latent)[slots, : used.shape[-1]] = used
        put(rows.rope, slots, k[:, 0, self.nope_dim :].to(torch.bfloat16))

    def read(self, layer_id: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        rows, slots = self.layers[self.index(layer_id)], self.read_slots(slots)
        if rows.rope is None:
            return take(rows.latent, slots, self.dtype).unsqueeze(1), None
        stored = raw(rows.latent)[slots]
        end = fp8_row_used(self.nope_dim)
        values = stored[:, : self.nope_dim].view(torch.float8_e4m3fn)
        scales = stored[:, self.nope_dim : end : SCALE_COPIES].contiguous()
        nope = dequantize_power_of_two(values, scales.view(torch.float8_e8m0fnu))
        return torch.cat((nope, rows.rope[slots]), dim=-1).unsqueeze(1), None

    def get_key(self, layer_id: int) -> torch.Tensor:
        return self.layers[self.index(layer_id)].latent


def owned(layers: Sequence[LatentRows], layer_ids: Sequence[int]) -> list[PoolTensor]:
    """The tensors of whole layers, in the order of the layers."""
    return [
        PoolTensor(name, (layer_id,), tensor, is_view=False)
        for layer_id, rows in zip(layer_ids, layers, strict=True)
        for name, tensor in rows.named()
    ]
