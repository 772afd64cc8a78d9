"""Latents of DeepSeek-V4 as uniform fp8 rows: no scales in the cache, no padding of pages."""

from __future__ import annotations

import torch

from kvplan.pools.base import raw
from kvplan.pools.latent import PagedLatentPool
from kvplan.pools.leaf import converted, put, take


class UniformLatentPool(PagedLatentPool):
    """float8_e4m3fn (pages, page_size * width) a layer; the door takes k (tokens, 1, width) alone.

    Values are stored with a scale of 1. `padding_tokens` are reserved on top of the size.
    """

    def page_row(self) -> tuple[int, torch.dtype]:
        return self.page_size * self.width, self.dtype

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

    def _rows(self, index: int) -> torch.Tensor:
        return raw(self._pages[index]).view(-1, self.width)
