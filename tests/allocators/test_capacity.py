"""The questions that a scheduler asks without knowing the allocator."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.allocators.interleaved import InterleavedAllocator
from kvplan.allocators.paged import PagedAllocator
from kvplan.allocators.sliding import SlidingAllocator
from kvplan.allocators.sparse import SparseAllocator
from kvplan.allocators.token import TokenAllocator
from kvplan.allocators.unified import UnifiedAllocator
from tests.allocators.machine import ids


class Cache:
    """Evicts one owned vector of slots a time, as a tree evicts whole leaves."""

    def __init__(self, pool, leaves):
        self.pool, self.leaves = pool, leaves
        self.asked = []

    def evict(self, num_tokens):
        self.asked.append(num_tokens)
        if not self.leaves:
            return 0
        leaf = self.leaves.pop(0)
        self.pool.free(leaf)
        return len(leaf)


class SlidingCache:
    """The same over two pools."""

    def __init__(self, pool, leaves):
        self.pool, self.leaves = pool, leaves
        self.asked = []

    def evict(self, num_tokens, swa_num_tokens):
        self.asked.append((num_tokens, swa_num_tokens))
        if self.leaves:
            self.pool.free(self.leaves.pop(0))


@pytest.mark.parametrize(
    ("page_size", "input_tokens", "max_new", "capacity", "answer"),
    [
        (1, 10, 100, 1000, 100),
        (1, 10, 2000, 1000, 988),
        (16, 10, 2000, 1024, 1024 - 16 - 17),
        (16, 1024, 5, 1024, 0),
        (64, 1, 0, 1024, 0),
    ],
)
def test_an_answer_is_clipped_to_an_empty_pool(page_size, input_tokens, max_new, capacity, answer):
    pool = PagedAllocator(0, page_size)

    assert pool.max_new_tokens_for_memory(input_tokens, max_new, token_capacity=capacity) == answer


@pytest.mark.parametrize(
    "pool", [TokenAllocator(8), PagedAllocator(8, 4), SlidingAllocator(8, 8, 4)]
)
def test_separate_pools_are_priced_by_the_schedulers_budgets(pool):
    assert pool.request_slot_reserve(holds_row=False, prefill_tokens=100) == 0
    assert pool.prealloc_ceiling_fits(10**9, 10**9) is None
    assert pool.prealloc_fits(10, 5, full_budget_tokens=10)
    assert pool.prealloc_fits(10, 5, full_budget_tokens=10, swa_budget_tokens=5)
    assert not pool.prealloc_fits(11, 5, full_budget_tokens=10, swa_budget_tokens=5)
    assert not pool.prealloc_fits(10, 6, full_budget_tokens=10, swa_budget_tokens=5)


@pytest.mark.parametrize(
    ("holds_row", "prefill_tokens", "reserve"),
    [(False, 0, 16 + 32), (True, 0, 32), (True, 9, 20), (False, 9, 36), (True, 100, 0)],
)
def test_a_sparse_request_reserves_scratch_and_what_its_buffer_lacks(
    holds_row, prefill_tokens, reserve
):
    pool = SparseAllocator(64, 4, spec_scratch_tokens=16, device_buffer_tokens=32)

    assert pool.request_slot_reserve(holds_row=holds_row, prefill_tokens=prefill_tokens) == reserve
    assert SparseAllocator(64, 4).request_slot_reserve(holds_row=False) == 0


def test_the_cache_gives_only_what_is_short():
    pool = PagedAllocator(32, 4)
    leaves = [pool.alloc(8) for _ in range(4)]
    cache: Any = Cache(pool, leaves)

    assert pool.evict_to_free_tokens(cache, 0)
    assert cache.asked == []
    assert pool.evict_to_free_tokens(cache, 12)
    assert cache.asked == [12, 4]
    assert not pool.evict_to_free_tokens(cache, 40)
    assert cache.leaves == []
    assert not pool.evict_to_free_tokens(None, 40)


def test_a_decode_that_fits_after_eviction_goes_on():
    pool = PagedAllocator(16, 4)
    cache: Any = Cache(pool, [pool.alloc(8)])
    pool.alloc(8)

    assert not pool.check_decode_capacity(None, 4)
    assert pool.check_decode_capacity(cache, 8)
    assert not pool.check_decode_capacity(cache, 12)


def test_a_rank_that_stays_short_is_asked_for_again():
    pool = InterleavedAllocator(16, 4, shard_size=2)
    leaves = [pool.alloc_cyclic(0, 4), pool.alloc_cyclic(0, 4), pool.alloc_cyclic(1, 4)]
    pool.alloc_cyclic(0, 16)
    cache: Any = Cache(pool, leaves)

    assert pool.available_size() == 0
    assert pool.evict_to_free_tokens(cache, 16)
    assert len(cache.asked) == 3


@pytest.mark.parametrize(
    "pool",
    [
        SlidingAllocator(32, 16, 4),
        UnifiedAllocator(16 + 24 * 4, 4, full_token_bytes=4, swa_token_bytes=2),
    ],
)
def test_a_cache_over_two_pools_is_asked_for_each_side(pool):
    cache: Any = SlidingCache(pool, [pool.alloc(8), pool.alloc(8)])

    assert pool.evict_to_free_tokens(cache, 4)
    assert len(cache.asked) == 1
    assert cache.asked[0][1] == 4
    assert not pool.evict_to_free_tokens(cache, 400)


def test_leaves_without_a_sliding_part_do_not_end_the_eviction():
    pool = SlidingAllocator(32, 16, 4)
    leaves = [slots for slots in (pool.alloc(8), pool.alloc(8)) if slots is not None]
    pool.free_swa(leaves[0])
    pool.alloc(8)

    class TombstonesFirst(SlidingCache):
        def evict(self, num_tokens, swa_num_tokens):
            self.asked.append((num_tokens, swa_num_tokens))
            if len(self.leaves) == 2:
                self.pool.free_full(self.leaves.pop(0))
            elif self.leaves:
                self.pool.free(self.leaves.pop(0))

    cache: Any = TombstonesFirst(pool, leaves)
    assert pool.available_size() == 0
    assert pool.evict_to_free_tokens(cache, 8)
    assert cache.asked == [(0, 8), (0, 8)]


def test_merged_frees_are_sorted_and_counted_before():
    pool = PagedAllocator(32, 4, need_sort=True)
    first, second = pool.alloc(8), pool.alloc(12)
    assert first is not None
    assert second is not None
    pool.free(second)
    pool.free(first)

    assert pool.available_size() == 32
    assert pool.free_pages().tolist() == [6, 7, 8, 3, 4, 5, 1, 2]
    pool.merge_and_sort_free()
    assert pool.free_pages().tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_pages_of_one_token_take_a_new_page_each_step():
    pool = PagedAllocator(8, 1)
    slots = pool.alloc_extend(ids([0]), ids([3]), ids([-1]))
    assert slots is not None
    more = pool.alloc_decode(ids([4, 1]), ids([int(slots[-1]), -1]))

    assert more is not None
    assert more.tolist() == [4, 5]
    assert pool.available_size() == 3


def test_without_checks_only_the_counts_are_watched():
    pool = PagedAllocator(16, 4, checks=False)
    slots = pool.alloc(16)
    assert slots is not None
    pool.free(slots)

    assert pool.ledger is None
    assert pool.available_size() == 16
    assert pool.verify_accounting() == []


def test_empty_calls_change_nothing():
    none = ids([])
    for pool in (
        TokenAllocator(4),
        PagedAllocator(8, 4),
        SlidingAllocator(8, 8, 4),
        SparseAllocator(8, 4),
    ):
        for call in (
            lambda p: p.alloc(0),
            lambda p: p.alloc_extend(none, none, none),
            lambda p: p.alloc_decode(none, none),
        ):
            assert call(pool).tolist() == []
        pool.free(none)
        pool.free_segments([])
        pool.free_page_ids(none)
        pool.free_full(none)
        assert pool.verify_accounting() == []
        assert pool.available_size() == pool.size or isinstance(pool, SparseAllocator)
