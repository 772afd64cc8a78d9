"""Full, sliding and state pools in one byte buffer, addressed by the unified allocator's pages."""

from __future__ import annotations

from typing import Protocol

import torch

from kvplan.errors import PoolError
from kvplan.pools.base import KvPool, PoolTensor
from kvplan.pools.recurrent import StatePool
from kvplan.pools.routed import RoutedPool
from kvplan.pools.sliding import sliding_slots
from kvplan.pools.token_major import TokenMajorPool
from kvplan.pools.write_loc import KVWriteLoc


class Moved(Protocol):
    """Pages that the allocator has given other places, in one of its bands."""

    @property
    def band(self) -> str:
        """full, swa or state."""

    @property
    def source(self) -> torch.Tensor:
        """Physical pages before."""

    @property
    def target(self) -> torch.Tensor:
        """Physical pages after."""


class UnifiedPool(RoutedPool):
    """Sub-pools over one buffer. Slots at its door are physical, translated by the allocator.

    `move` copies the bytes of pages that a compaction moves: hand it to the allocator.
    """

    requires_physical = True

    def __init__(
        self,
        buffer: torch.Tensor,
        full: TokenMajorPool,
        *,
        sliding: TokenMajorPool | None = None,
        state: StatePool | None = None,
    ) -> None:
        parts = [pool for pool in (full, sliding) if pool is not None]
        super().__init__(
            size=full.size,
            page_size=full.page_size,
            layer_ids=sorted(layer_id for pool in parts for layer_id in pool.layer_ids),
            storage=full.storage,
        )
        self.buffer = buffer
        self.full = full
        self.sliding = sliding
        self.state = state
        self.no_host_form = "unified pools have host tiers by sub-pool: use full and sliding"

    def part(self, layer_id: int) -> KvPool:
        self.index(layer_id)
        if self.sliding is not None and layer_id in self.sliding.layer_ids:
            return self.sliding
        return self.full

    def parts(self) -> dict[str, list[PoolTensor]]:
        linear = () if self.state is None else self.state.layer_ids
        layers = tuple(sorted((*self.layer_ids, *linear)))
        parts = {
            "unified": [PoolTensor("buffer", layers, self.buffer, is_view=False)],
            "full": self.full.tensors(),
        }
        if self.sliding is not None:
            parts["sliding"] = self.sliding.tensors()
        if self.state is not None:
            parts["state"] = self.state.tensors()
        return parts

    def set_kv_buffer(
        self, layer_id: int, loc: KVWriteLoc, k: torch.Tensor, v: torch.Tensor | None = None
    ) -> None:
        part = self.part(layer_id)
        slots = loc.loc if loc.full_loc is None else loc.full_loc
        if part is self.sliding:
            slots = sliding_slots(layer_id, loc)
        part.set_kv_buffer(layer_id, KVWriteLoc(slots, physical=loc.physical), k, v)

    def copy_pages(self, source: torch.Tensor, target: torch.Tensor) -> None:  # noqa: ARG002
        raise PoolError(
            "pages of a unified pool lie in bands of their own",
            hint="copy pages of full and of sliding apart",
        )

    def move(self, moved: Moved) -> None:
        """Copy the bytes of moved pages; sources are read before targets are written."""
        if moved.band == "state":
            assert self.state is not None
            self.state.copy_slots(moved.source, moved.target)
            return
        pool = self.full if moved.band == "full" else self.sliding
        assert pool is not None
        pool.copy_pages(moved.source, moved.target)
