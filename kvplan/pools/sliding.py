"""Full and sliding layers in two pools with slots of their own."""

from __future__ import annotations

import torch

from kvplan.errors import PoolError
from kvplan.pools.base import KvPool, PoolTensor, SlotPlace, check_page_lists
from kvplan.pools.routed import RoutedPool
from kvplan.pools.window_map import WindowMap
from kvplan.pools.write_loc import KVWriteLoc


class SwaPool(RoutedPool):
    """Routes each layer to the full or the sliding pool; `layers` maps global id -> (index, is_sliding).

    Capacity is the full pool's. Slots of reads and writes are those of the layer's own side.
    """

    def __init__(self, full: KvPool, sliding: KvPool) -> None:
        if full.page_size != sliding.page_size:
            raise PoolError(
                f"the full and the sliding pool page alike, not by {full.page_size} and {sliding.page_size}"
            )
        super().__init__(
            size=full.size,
            page_size=full.page_size,
            layer_ids=sorted(full.layer_ids + sliding.layer_ids),
            storage=full.storage,
        )
        self.full = full
        self.sliding = sliding
        self.layers = {
            layer_id: (pool.index(layer_id), pool is sliding)
            for pool in (full, sliding)
            for layer_id in pool.layer_ids
        }
        self._window = WindowMap(self.page_size)

    def part(self, layer_id: int) -> KvPool:
        self.index(layer_id)
        return self.sliding if self.layers[layer_id][1] else self.full

    def register_mapping(self, full_to_swa: torch.Tensor) -> None:
        """Take the sliding allocator's table of full slots; copies and `translate` read it."""
        self._window.register(full_to_swa)

    def translate(self, slots: torch.Tensor) -> torch.Tensor:
        """Sliding slots of full slots: 0 where the window has left them, -1 for -1."""
        return self._window.translate(slots)

    def parts(self) -> dict[str, list[PoolTensor]]:
        return {"full": self.full.tensors(), "sliding": self.sliding.tensors()}

    def set_kv_buffer(
        self, layer_id: int, loc: KVWriteLoc, k: torch.Tensor, v: torch.Tensor | None = None
    ) -> None:
        part = self.part(layer_id)
        slots = loc.loc if loc.full_loc is None else loc.full_loc
        if part is self.sliding:
            slots = sliding_slots(layer_id, loc)
        part.set_kv_buffer(layer_id, KVWriteLoc(slots, physical=loc.physical), k, v)

    def places(self, layer_id: int, slot: int) -> list[SlotPlace]:
        return self.part(layer_id).places(layer_id, slot)

    def copy_pages(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copy whole pages of full slots, and the sliding pages mapped to both ends."""
        check_page_lists(source, target)
        sliding_source, sliding_target = self._window.page_pairs(source, target)
        self.full.copy_pages(source, target)
        self.sliding.copy_pages(sliding_source, sliding_target)


def sliding_slots(layer_id: int, loc: KVWriteLoc) -> torch.Tensor:
    """The sliding side of a write loc; refused where it carries none."""
    if loc.swa_loc is None:
        raise PoolError(
            f"layer {layer_id} slides and the write loc carries no sliding slots",
            hint="translate once a step: KVWriteLoc(loc, swa_loc=pool.translate(loc))",
        )
    return loc.swa_loc
