"""DeepSeek-V4 with a ring a request: each layer's window lies in the request rows' own rings."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvplan.errors import PoolError
from kvplan.pools.base import PoolTensor, check_page_lists
from kvplan.pools.compressed import CompressedPool, RatioPool
from kvplan.pools.routed import RoutedPool
from kvplan.pools.row_latent import LatentRows, RowLatentPool, owned


class RequestRingPool(CompressedPool):
    """A layer has one buffer: the rings of all request rows, then the latents of its ratio.

    `window` and the ratios' latents are views of `layers`. A token's slot in the window is
    `ring_slots(row, position)`, and no allocator hands it out.
    """

    def __init__(
        self,
        layers: Sequence[LatentRows],
        *,
        size: int,
        page_size: int,
        window: RowLatentPool,
        by_ratio: Sequence[RatioPool],
    ) -> None:
        super().__init__(size=size, page_size=page_size, window=window, by_ratio=by_ratio)
        self.layers = dict(zip(window.layer_ids, layers, strict=True))
        self.ring = window.page_size

    def ring_slots(self, rows: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Window slots of tokens by request row; position p reuses that of p - ring."""
        return rows * self.ring + positions % self.ring

    def register_mapping(self, full_to_swa: torch.Tensor) -> None:  # noqa: ARG002
        raise self._no_table()

    def translate(self, slots: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        raise self._no_table()

    def parts(self) -> dict[str, list[PoolTensor]]:
        compressed = {layer for pool in self.by_ratio.values() for layer in pool.latent.layer_ids}
        alone = [layer for layer in self.layer_ids if layer not in compressed]
        parts = {"sliding": self._buffers(alone)} if alone else {}
        for ratio, pool in self.by_ratio.items():
            parts[f"c{ratio}"] = self._buffers(pool.latent.layer_ids) + pool.side_tensors()
        return parts

    def copy_pages(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copy whole full pages; rings belong to rows and stay."""
        check_page_lists(source, target)
        RoutedPool.copy_pages(self, source, target)

    def _buffers(self, layer_ids: Sequence[int]) -> list[PoolTensor]:
        return owned([self.layers[layer_id] for layer_id in layer_ids], layer_ids)

    def _no_table(self) -> PoolError:
        return PoolError(
            "this window has no table: it lies in the rings of the request rows",
            hint="use ring_slots(rows, positions)",
        )
