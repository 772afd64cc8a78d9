"""HiSparse: logical slots for every token, device slots for the selected ones."""

from __future__ import annotations

import torch

from kvplan.errors import PoolError
from kvplan.pools.base import KvPool, LayerBuffer, PoolTensor
from kvplan.pools.host import HostTier
from kvplan.pools.index_keys import IndexKeyPool
from kvplan.pools.routed import RoutedPool
from kvplan.pools.write_loc import KVWriteLoc, check_slots


class HisparsePool(RoutedPool):
    """A device pool smaller than the logical space of size * host_to_device_ratio tokens.

    Slots at its door are logical; the allocator's table maps them to device slots (0: not on the
    device, the last entry is -1). Index keys, where there are any, cover the logical space.
    """

    def __init__(
        self,
        device_pool: KvPool,
        *,
        host_to_device_ratio: int,
        index_keys: IndexKeyPool | None = None,
    ) -> None:
        if host_to_device_ratio < 1:
            raise PoolError(
                f"the host to device ratio must be at least 1, it is {host_to_device_ratio}"
            )
        super().__init__(
            size=device_pool.size * host_to_device_ratio,
            page_size=device_pool.page_size,
            layer_ids=device_pool.layer_ids,
            storage=device_pool.storage,
        )
        if index_keys is not None and index_keys.size != self.size:
            raise PoolError(
                f"the index keys cover {index_keys.size} tokens, the logical space has {self.size}"
            )
        self.device_pool = device_pool
        self.index_keys = index_keys
        self.no_host_form = "HiSparse keeps its own host side: use host_side()"
        self._table: torch.Tensor | None = None

    def part(self, layer_id: int) -> KvPool:
        self.index(layer_id)
        return self.device_pool

    def register_mapping(self, logical_to_device: torch.Tensor) -> None:
        """Take the allocator's table of logical slots."""
        self._table = logical_to_device

    def translate(self, slots: torch.Tensor) -> torch.Tensor:
        """Device slots of logical ones: 0 where the token is not on the device, -1 for -1."""
        if self._table is None:
            raise PoolError(
                "the device slots are unknown: no mapping is registered",
                hint="call register_mapping with the allocator's table",
            )
        return self._table[slots]

    def host_side(self) -> HostTier:
        """Host buffers for the whole logical space: host page = logical page."""
        return HostTier(self.device_pool, size=self.size + self.page_size)

    def parts(self) -> dict[str, list[PoolTensor]]:
        keys = [] if self.index_keys is None else self.index_keys.tensors()
        return {"kv": self.device_pool.tensors() + keys}

    def layer_buffers(self, layer_id: int) -> list[LayerBuffer]:
        raise PoolError(
            f"pages of layer {layer_id} lie on the device only in part",
            hint="use device_pool for device pages, host_side() for logical ones",
        )

    def set_kv_buffer(
        self, layer_id: int, loc: KVWriteLoc, k: torch.Tensor, v: torch.Tensor | None = None
    ) -> None:
        check_slots(loc.loc, self.num_slots)
        # what is not on the device, padding of -1 included, lands in the padding page
        device = KVWriteLoc(self.translate(loc.loc).clamp(min=0), physical=True)
        super().set_kv_buffer(layer_id, device, k, v)

    def read(self, layer_id: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Values at logical slots that are on the device."""
        check_slots(slots, self.num_slots, "the read")
        device = self.translate(slots)
        if device.device.type == "cpu" and bool((device <= 0).any()):
            slot = int(slots[device <= 0][0])
            raise PoolError(
                f"slot {slot} is not on the device", hint="restore its page from host_side() first"
            )
        return super().read(layer_id, device)

    def copy_pages(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copy device pages; logical pages move by the mapping."""
        self.device_pool.copy_pages(source, target)
