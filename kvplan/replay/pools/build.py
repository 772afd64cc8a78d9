"""Allocator and request rows of a launch, ready for a replay."""

from __future__ import annotations

import torch

from kvplan.allocators.backend import Backend
from kvplan.allocators.paged import PagedAllocator
from kvplan.allocators.sliding import SlidingAllocator
from kvplan.allocators.slots import StateSlotAllocator
from kvplan.allocators.token import TokenAllocator
from kvplan.pools.build import Pools
from kvplan.pools.compressed import CompressedPool
from kvplan.pools.hybrid_rows import HybridRequestRows
from kvplan.pools.rows import RequestRows
from kvplan.pools.sliding import SwaPool
from kvplan.pools.storage import Storage
from kvplan.replay.pools.memory import PoolMemory
from kvplan.replay.pools.plan_states import PlanStateMemory
from kvplan.replay.pools.sliding import SlidingPoolMemory
from kvplan.replay.pools.states import StatePoolMemory
from kvplan.replay.server import Server
from kvplan.units import floor_page


def build_memory(
    server: Server, storage: Storage, backend: Backend | str = Backend.REFERENCE
) -> PoolMemory:
    """Memory without KV buffers: the slots are real, nothing is written to them."""
    rows = RequestRows(server.num_rows, server.row_width, storage=storage)
    return memory_over(server, rows, storage.device, backend)


def plan_memory(
    server: Server, pools: Pools, backend: Backend | str = Backend.REFERENCE
) -> PoolMemory:
    """Memory over the pools of a plan; those with a window learn the allocator's mapping.

    A pipeline stage without linear or sliding layers counts states or sliding slots all the same:
    all stages schedule alike.
    """
    memory = memory_over(server, pools.rows, pools.kv.storage.device, backend)
    allocator, rows = memory.allocator, pools.rows
    if isinstance(allocator, SlidingAllocator):
        if isinstance(pools.kv, SwaPool | CompressedPool):
            pools.kv.register_mapping(allocator.full_to_swa)
    elif server.states is not None and isinstance(rows, HybridRequestRows):
        rows.state_slots.resize(server.states.num_slots)
        return PlanStateMemory(allocator, rows)
    return memory


def memory_over(
    server: Server, rows: RequestRows, device: torch.device, backend: Backend | str
) -> PoolMemory:
    """The allocator of a launch beside its rows."""
    page = server.page_size
    size = floor_page(server.num_tokens, page)
    if server.sliding is not None:
        size_swa = floor_page(server.sliding.num_tokens, page)
        both = SlidingAllocator(size, size_swa, page, device=device, backend=backend)
        return SlidingPoolMemory(both, rows)
    allocator = (
        TokenAllocator(size, device=device)
        if page == 1
        else PagedAllocator(size, page, device=device, backend=backend)
    )
    if server.states is not None:
        states = StateSlotAllocator(server.states.num_slots, device=device)
        return StatePoolMemory(allocator, rows, states)
    return PoolMemory(allocator, rows)
