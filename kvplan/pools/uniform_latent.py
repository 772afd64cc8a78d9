"""Latents of DeepSeek-V4 as uniform fp8 rows: no scales in the cache, no padding of pages."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvplan.pools.base import RowShapes, raw
from kvplan.pools.leaf import LeafPool, converted, put, take
from kvplan.pools.storage import Storage
from kvplan.units import ceil_div


class UniformLatentPool(LeafPool):
    """float8_e4m3fn (pages, page_size * width) a layer; the door takes k (tokens, 1, width) alone.

    Values are stored with a scale of 1. `padding_tokens` are reserved on top of the size.
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
        super().__init__(
            size=size,
            page_size=page_size,
            layer_ids=layer_ids,
            dtype=torch.float8_e4m3fn,
            storage=storage,
        )
        self.width = nope_dim + rope_dim
        self._pages = self.add(
            "latent",
            (page_size * self.width,),
            torch.float8_e4m3fn,
            rows_per_page=1,
            num_rows=ceil_div(size + padding_tokens, page_size),
        )

    def row_shapes(self, layer_id: int) -> RowShapes:
        self.index(layer_id)
        return RowShapes((1, self.width), None)

    def write(
        self,
        index: int,
        slots: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor | None,  # noqa: ARG002
    ) -> None:
        put(self._rows(index), slots, converted(k[:, 0], self.dtype))

    def read(self, layer_id: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        rows = self._rows(self.index(layer_id))
        return take(rows, self.read_slots(slots), self.dtype).unsqueeze(1), None

    def get_key(self, layer_id: int) -> torch.Tensor:
        return self._pages[self.index(layer_id)]

    def get_value(self, layer_id: int) -> torch.Tensor:
        return self.get_key(layer_id)

    def _rows(self, index: int) -> torch.Tensor:
        return raw(self._pages[index]).view(-1, self.width)
