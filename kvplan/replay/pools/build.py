"""Allocator and request rows of a launch, ready for a replay."""

from __future__ import annotations

from kvplan.allocators.backend import Backend
from kvplan.allocators.paged import PagedAllocator
from kvplan.allocators.sliding import SlidingAllocator
from kvplan.allocators.token import TokenAllocator
from kvplan.pools.rows import RequestRows
from kvplan.pools.storage import Storage
from kvplan.replay.pools.memory import PoolMemory
from kvplan.replay.pools.sliding import SlidingPoolMemory
from kvplan.replay.server import Server
from kvplan.units import floor_page


def build_memory(
    server: Server, storage: Storage, backend: Backend | str = Backend.REFERENCE
) -> PoolMemory:
    """Memory without KV buffers: the slots are real, nothing is written to them."""
    rows = RequestRows(server.num_rows, server.row_width, storage=storage)
    page, device = server.page_size, storage.device
    size = floor_page(server.num_tokens, page)
    if server.sliding is not None:
        size_swa = floor_page(server.sliding.num_tokens, page)
        return SlidingPoolMemory(
            SlidingAllocator(size, size_swa, page, device=device, backend=backend), rows
        )
    if page == 1:
        return PoolMemory(TokenAllocator(size, device=device), rows)
    return PoolMemory(PagedAllocator(size, page, device=device, backend=backend), rows)
