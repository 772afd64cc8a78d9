"""The host tiers of a plan: one for each device pool that the launch mirrors."""

from __future__ import annotations

import torch

from kvplan.errors import PoolError
from kvplan.pools.base import KvPool
from kvplan.pools.build import META, Pools
from kvplan.pools.compressed import CompressedPool
from kvplan.pools.hisparse import HisparsePool
from kvplan.pools.host import HostTier, Paged
from kvplan.pools.hybrid import HybridLinearPool
from kvplan.pools.room import check_room
from kvplan.pools.sliding import SwaPool
from kvplan.pools.sparse import SparsePool
from kvplan.pools.striped import StripedPool
from kvplan.sizing.capacities import HostPool
from kvplan.sizing.hisparse import SWAPPED_RATIO


def host_tiers(pools: Pools) -> dict[str, HostTier]:
    """Host buffers of the planned sizes, by the plan's names: kv, sliding, state.

    Sizes are tokens (states for `state`) in whole pages. DeviceError where the host has no room.
    """
    planned = pools.stage.host
    if pools.rows.storage.device.type != META.device.type:
        num_bytes = sum(tier_bytes(mirrored(pools, each), each) for each in planned)
        check_room(torch.device("cpu"), num_bytes)
    return {each.pool: HostTier(mirrored(pools, each), size=each.size) for each in planned}


def tier_bytes(pool: Paged, planned: HostPool) -> int:
    """Bytes of a tier before it is made."""
    pages = planned.size // planned.page_size
    return sum(
        buffer.tensor[:1].nbytes * buffer.rows_per_page * pages
        for layer_id in pool.layer_ids
        for buffer in pool.layer_buffers(layer_id)
    )


def mirrored(pools: Pools, planned: HostPool) -> Paged:
    """The device pool that a planned host pool mirrors."""
    if planned.pool == "state":
        if pools.state is None:
            raise PoolError("the plan mirrors recurrent state, and the stage has none")
        return pools.state
    kv = one_rank(pools.kv)
    if pools.plan.resolved.hisparse is not None:
        return swapped(kv)
    sliding = planned.pool == "sliding"
    if isinstance(kv, SwaPool):
        return kv.sliding if sliding else kv.full
    if isinstance(kv, CompressedPool):
        return kv.window if sliding else kv
    return kv


def swapped(kv: KvPool) -> Paged:
    """The device side of what HiSparse swaps."""
    if isinstance(kv, SparsePool):
        kv = kv.mains[-1]
    if isinstance(kv, CompressedPool):
        return kv.by_ratio[SWAPPED_RATIO].latent
    assert isinstance(kv, HisparsePool)
    return kv.device_pool


def one_rank(pool: KvPool) -> KvPool:
    """The pool that holds this rank's pages, without what is laid over it."""
    while isinstance(pool, HybridLinearPool | StripedPool):
        pool = pool.full if isinstance(pool, HybridLinearPool) else pool.local
    return pool
