"""What allocators keep on the device: lists of free pages, and tables from slots to slots."""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.sizing.plan import StagePlan
from kvplan.sizing.tensor import TensorPlan

ALLOCATOR = "allocator"
# the ledger's names; the others are free lists
TITLES = {
    "full_to_swa": "full to sliding mapping",
    "logical_to_device": "logical to device mapping",
    "page_tables": "virtual page tables",
    "scratch_page_of_page": "gather plan",
}


def allocator_tensors(planned: StagePlan) -> Iterator[TensorPlan]:
    """Every int64 list and table of one stage's KV allocators."""
    pool, page_size = planned.pool, planned.stage.resolved.page_size
    if pool.unified is not None:
        tables, free = pool.unified.table_entries
        yield table("free_virtual_pages", free)
        yield table("page_tables", tables)
        return
    if planned.stage.resolved.hisparse is not None:
        from kvplan.sizing.hisparse import device_pages, logical_entries

        yield table("device_free_pages", device_pages(planned))
        yield table("logical_to_device", logical_entries(planned))
    two = pool.sliding or pool.compressed
    if two is None:
        resolved = planned.stage.resolved
        tokens = pool.tokens * resolved.logical_ratio * resolved.kv_shards
        yield table("free_pages", tokens // page_size)
        if resolved.kv_shards > 1:
            from kvplan.sizing.sharding import page_positions

            entries = page_positions(planned)
            yield TensorPlan(ALLOCATOR, "scratch_page_of_page", 1, (entries,), "int32")
        return
    # where no layer is full, both sides are one list
    if two.full_tokens:
        yield table("full_free_pages", two.full_tokens // page_size)
    resolved, sliding = planned.stage.resolved, two.sliding_tokens
    if resolved.request_ring is not None:  # pages of a pool that is not there
        sliding = int(two.full_tokens * resolved.swa_full_tokens_ratio)
    yield table("sliding_free_pages", sliding // page_size)
    yield table("full_to_swa", (two.full_tokens or two.sliding_tokens) + page_size + 1)


def table(name: str, entries: int) -> TensorPlan:
    return TensorPlan(ALLOCATOR, name, 1, (entries,), "int64")
