"""DeepSeek-V4: a window pool for all layers, and pools that hold one latent for several tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvplan.errors import PoolError
from kvplan.pools.base import KvPool, LayerBuffer, PoolTensor, check_page_lists
from kvplan.pools.index_keys import IndexKeyPool
from kvplan.pools.leaf import LeafPool
from kvplan.pools.routed import RoutedPool
from kvplan.pools.sliding import sliding_slots
from kvplan.pools.state_ring import StateRing
from kvplan.pools.window_map import WindowMap
from kvplan.pools.write_loc import KVWriteLoc


class RatioPool:
    """What the layers of one compression ratio keep: latents, rings, index keys of ratio 4.

    Page p of the full space is page p here: page_size // ratio latents.
    """

    def __init__(
        self,
        ratio: int,
        latent: LeafPool,
        *,
        rings: Sequence[StateRing] = (),
        index_keys: IndexKeyPool | None = None,
    ) -> None:
        self.ratio = ratio
        self.latent = latent
        self.rings = tuple(rings)
        self.index_keys = index_keys

    def slots_of(self, slots: torch.Tensor) -> torch.Tensor:
        """Compressed slots of the tokens that end a group; others are refused where that is seen."""
        if slots.device.type == "cpu":
            inside = slots[(slots + 1) % self.ratio != 0]
            if len(inside):
                raise PoolError(
                    f"slot {int(inside[0])} does not end a group of {self.ratio} tokens",
                    hint=f"write a latent with the token whose slot + 1 is a multiple of {self.ratio}",
                )
        return slots // self.ratio

    def tensors(self) -> list[PoolTensor]:
        """Latents, index keys and rings."""
        return self.latent.tensors() + self.side_tensors()

    def side_tensors(self) -> list[PoolTensor]:
        """Index keys and rings."""
        keys = [] if self.index_keys is None else self.index_keys.tensors()
        return keys + [entry for ring in self.rings for entry in ring.tensors()]

    def layer_buffers(self, layer_id: int) -> list[LayerBuffer]:
        """What travels with a page of the full space."""
        keys = [] if self.index_keys is None else self.index_keys.layer_buffers(layer_id)
        return self.latent.layer_buffers(layer_id) + keys


class CompressedPool(RoutedPool):
    """`size` full tokens in pages; every layer's window lies in `window`, by sliding slots.

    A layer of ratio r also keeps a latent for every r tokens, in by_ratio[r].
    """

    def __init__(
        self,
        *,
        size: int,
        page_size: int,
        window: LeafPool,
        by_ratio: Sequence[RatioPool],
    ) -> None:
        super().__init__(
            size=size, page_size=page_size, layer_ids=window.layer_ids, storage=window.storage
        )
        self.window = window
        self.by_ratio = {pool.ratio: pool for pool in by_ratio}
        self._window_map = WindowMap(page_size)

    def part(self, layer_id: int) -> KvPool:
        self.index(layer_id)
        return self.window

    def ratio_pool(self, layer_id: int) -> RatioPool:
        """The compressed side of a layer; refused for a layer of ratio 0."""
        self.index(layer_id)
        for pool in self.by_ratio.values():
            if layer_id in pool.latent.layer_ids:
                return pool
        raise PoolError(f"layer {layer_id} keeps its window alone, nothing compressed")

    def register_mapping(self, full_to_swa: torch.Tensor) -> None:
        """Take the sliding allocator's table of full slots."""
        self._window_map.register(full_to_swa)

    def translate(self, slots: torch.Tensor) -> torch.Tensor:
        """Sliding slots of full slots: 0 where the window has left them, -1 for -1."""
        return self._window_map.translate(slots)

    def set_kv_buffer(
        self, layer_id: int, loc: KVWriteLoc, k: torch.Tensor, v: torch.Tensor | None = None
    ) -> None:
        """Write a layer's window at the sliding slots of loc."""
        slots = sliding_slots(layer_id, loc)
        super().set_kv_buffer(layer_id, KVWriteLoc(slots, physical=loc.physical), k, v)

    def set_compressed(self, layer_id: int, loc: KVWriteLoc, k: torch.Tensor) -> None:
        """Write the latents of whole groups, by the full slots of the tokens that end them."""
        pool = self.ratio_pool(layer_id)
        slots = KVWriteLoc(pool.slots_of(loc.loc), physical=loc.physical)
        pool.latent.set_kv_buffer(layer_id, slots, k)

    def read_compressed(self, layer_id: int, slots: torch.Tensor) -> torch.Tensor:
        """Latents of whole groups, by the full slots of the tokens that end them."""
        pool = self.ratio_pool(layer_id)
        return pool.latent.read(layer_id, pool.slots_of(slots))[0]

    def set_index_keys(
        self, layer_id: int, loc: KVWriteLoc, keys: torch.Tensor, scales: torch.Tensor
    ) -> None:
        """Write the index keys of whole groups, by the full slots of the tokens that end them."""
        pool = self.ratio_pool(layer_id)
        if pool.index_keys is None:
            raise PoolError(f"layer {layer_id} of ratio {pool.ratio} has no index keys")
        pool.index_keys.write(layer_id, pool.slots_of(loc.loc), keys, scales)

    def parts(self) -> dict[str, list[PoolTensor]]:
        ratios = {f"c{ratio}": pool.tensors() for ratio, pool in self.by_ratio.items()}
        return {"sliding": self.window.tensors()} | ratios

    def layer_buffers(self, layer_id: int) -> list[LayerBuffer]:
        """What travels with full pages: the compressed side; the window pages apart."""
        holding = (pool for pool in self.by_ratio.values() if layer_id in pool.latent.layer_ids)
        return [buffer for pool in holding for buffer in pool.layer_buffers(layer_id)]

    def copy_pages(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copy whole full pages, and the window pages mapped to both ends."""
        check_page_lists(source, target)
        window_source, window_target = self._window_map.page_pairs(source, target)
        super().copy_pages(source, target)
        self.window.copy_pages(window_source, window_target)
