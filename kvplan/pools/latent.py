"""What the latents of DeepSeek-V4 have in common, however their bytes lie."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch

from kvplan.pools.base import RowShapes
from kvplan.pools.leaf import LeafPool
from kvplan.pools.storage import Storage
from kvplan.units import ceil_div


class LatentPool(LeafPool):
    """Latents of nope_dim + rope_dim values; the door takes k (tokens, 1, width) alone.

    A latent is key and value at once: both views are the buffer as it lies.
    """

    def __init__(
        self,
        *,
        size: int,
        page_size: int,
        layer_ids: Sequence[int],
        nope_dim: int,
        rope_dim: int,
        dtype: torch.dtype,
        storage: Storage,
    ) -> None:
        super().__init__(
            size=size, page_size=page_size, layer_ids=layer_ids, dtype=dtype, storage=storage
        )
        self.nope_dim = nope_dim
        self.rope_dim = rope_dim
        self.width = nope_dim + rope_dim

    def row_shapes(self, layer_id: int) -> RowShapes:
        self.index(layer_id)
        return RowShapes((1, self.width), None)

    def get_value(self, layer_id: int) -> torch.Tensor:
        return self.get_key(layer_id)


class PagedLatentPool(LatentPool):
    """fp8 latents of which a whole page is one row of the buffer.

    `padding_tokens` are reserved on top of the size.
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
            nope_dim=nope_dim,
            rope_dim=rope_dim,
            dtype=torch.float8_e4m3fn,
            storage=storage,
        )
        width, dtype = self.page_row()
        self._pages = self.add(
            "latent",
            (width,),
            dtype,
            rows_per_page=1,
            num_rows=ceil_div(size + padding_tokens, page_size),
        )

    @abstractmethod
    def page_row(self) -> tuple[int, torch.dtype]:
        """Elements that a page takes, and their dtype; PoolError for dimensions that do not pack."""

    def get_key(self, layer_id: int) -> torch.Tensor:
        return self._pages[self.index(layer_id)]
