"""Misuse is refused with the request or slot named, and the pool stays as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kvplan.allocators.compressed import CompressedAllocator
from kvplan.allocators.interleaved import InterleavedAllocator
from kvplan.allocators.paged import PagedAllocator
from kvplan.allocators.ring import RingAllocator
from kvplan.allocators.sliding import SlidingAllocator
from kvplan.allocators.slots import StateSlotAllocator
from kvplan.allocators.sparse import SparseAllocator
from kvplan.allocators.token import TokenAllocator
from kvplan.allocators.unified import UnifiedAllocator
from kvplan.errors import PoolError
from tests.allocators.machine import ids
from tests.allocators.refusing import PAGED, contents, paged, refused, ring, sliding, unified


@pytest.mark.parametrize("build", PAGED)
def test_lengths_that_go_back_name_the_request(build):
    pool = build()
    first = pool.alloc_extend(ids([0]), ids([6]), ids([-1]))

    refused(
        pool,
        "request 1 of the batch goes back from 6 to 5 tokens",
        lambda: pool.alloc_extend(ids([0, 6]), ids([3, 5]), ids([-1, first[-1]])),
    )
    refused(
        pool,
        "request 0 of the batch has a prefix of -4 tokens",
        lambda: pool.alloc_extend(ids([-4]), ids([5]), ids([-1])),
    )
    refused(
        pool,
        "request 1 of the batch decodes to 0 tokens",
        lambda: pool.alloc_decode(ids([7, 0]), ids([int(first[-1]), -1])),
    )


@pytest.mark.parametrize("build", PAGED)
def test_a_last_loc_of_another_page_names_the_request(build):
    pool = build()
    first = pool.alloc_extend(ids([0]), ids([6]), ids([-1]))
    wrong_offset, another_page = int(first[-1]) - 1, int(first[-1]) + 4 * 7

    refused(
        pool,
        f"request 0 of the batch has last_loc {wrong_offset}, but a prefix of 6 tokens ends",
        lambda: pool.alloc_extend(ids([6]), ids([9]), ids([wrong_offset])),
    )
    refused(
        pool,
        f"request 1 of the batch has last_loc {another_page}, a slot of a page that is not",
        lambda: pool.alloc_extend(ids([0, 6]), ids([1, 9]), ids([-1, another_page])),
    )
    refused(
        pool,
        f"request 0 of the batch has last_loc {another_page}, a slot of a page that is not",
        lambda: pool.alloc_decode(ids([7]), ids([another_page])),
    )


@pytest.mark.parametrize("build", PAGED)
def test_a_batch_whose_vectors_differ_in_length_is_refused(build):
    pool = build()

    refused(
        pool, "1 prefix lengths for 2", lambda: pool.alloc_extend(ids([0]), ids([1, 2]), ids([-1]))
    )
    refused(pool, "1 last slots for 2", lambda: pool.alloc_decode(ids([1, 1]), ids([-1])))


@pytest.mark.parametrize("build", PAGED)
def test_double_frees_name_the_slot(build):
    pool = build()
    kept = pool.alloc_extend(ids([0]), ids([6]), ids([-1]))
    gone = pool.alloc_extend(ids([0]), ids([6]), ids([-1]))
    pool.free(gone)

    slot = int(gone[0])
    match = f"slot {slot} is freed twice: page {slot // 4} is not handed out"
    refused(pool, match, lambda: pool.free(gone))
    refused(pool, match, lambda: pool.free(torch.cat((kept, gone))))
    refused(pool, match, lambda: pool.free_segment(gone, start_pos=0))
    refused(pool, match, lambda: pool.free_page_ids(gone[::4] // 4))


@pytest.mark.parametrize("build", [paged, sliding, unified, ring])
def test_what_a_group_collected_is_not_freed_again(build):
    pool = build()
    slots = pool.alloc_extend(ids([0]), ids([6]), ids([-1]))
    pool.free_group_begin()
    pool.free_segment(slots, start_pos=0)

    refused(pool, f"slot {int(slots[0])} is freed twice", lambda: pool.free(slots))
    refused(pool, "a free group is open already", pool.free_group_begin)

    pool.free_group_end()
    refused(pool, "no free group is open", pool.free_group_end)
    assert pool.available_size() == pool.size


@pytest.mark.parametrize("build", PAGED)
def test_padding_and_foreign_slots_are_named(build):
    pool = build()
    slots = pool.alloc(8)

    refused(pool, "slot 3 is a padding slot", lambda: pool.free(ids([3])))
    refused(pool, "slot -1 is no slot", lambda: pool.free(ids([-1])))
    refused(pool, "slot 4000 is foreign", lambda: pool.free(torch.cat((slots, ids([4000])))))


@pytest.mark.parametrize("build", PAGED)
def test_sizes_that_are_negative_or_cut_a_page_are_refused(build):
    pool = build()

    refused(pool, "cannot allocate -4 tokens", lambda: pool.alloc(-4))
    refused(pool, "6 tokens are no whole pages of 4", lambda: pool.alloc(6))
    refused(pool, "starts at position 6", lambda: pool.free_segment(ids([4]), start_pos=6))


@pytest.mark.parametrize("build", PAGED)
def test_segments_that_share_a_page_are_refused_before_any_goes(build):
    pool = build()
    slots = pool.alloc_extend(ids([0]), ids([11]), ids([-1]))

    refused(
        pool,
        "the segment at position 4 shares a page with the one that ends at 6",
        lambda: pool.free_segments([(slots[:6], 0), (slots[4:], 4)]),
    )


@pytest.mark.parametrize("build", [paged, sliding, unified, ring])
def test_a_segment_of_scattered_slots_names_the_first_stray(build):
    pool = build()
    slots = pool.alloc_extend(ids([0]), ids([8]), ids([-1]))
    stray = slots[[0, 1, 2, 4, 3]]

    refused(
        pool,
        f"slot {int(slots[4])} is not the slot of a segment's token 3",
        lambda: pool.free_segment(stray, start_pos=0),
    )
    refused(
        pool,
        f"page {int(slots[0]) // 4} .* is freed twice by one call",
        lambda: pool.free_page_ids(slots[[0, 0]] // 4),
    )


@pytest.mark.parametrize("build", [sliding, unified])
def test_a_sliding_part_goes_back_once_and_is_never_lost(build):
    pool = build()
    slots = pool.alloc_extend(ids([0]), ids([10]), ids([-1]))
    page = int(slots[0]) // 4

    refused(pool, f"slot {int(slots[0])} still has a", lambda: pool.free_full(slots))
    pool.free_swa(slots[:4])
    refused(pool, f"page {page} .* has no ", lambda: pool.free_swa(slots[:4]))
    refused(pool, f"page {page} .* has no ", lambda: pool.free_swa_segment(slots, start_pos=0))
    refused(pool, f"page {page} .* has no ", lambda: pool.free_segment(slots, start_pos=0))

    pool.free_full_segment(slots[:4], start_pos=0)
    pool.free_segment(slots[4:], start_pos=4)
    assert pool.available_size() == pool.size


def test_without_pages_a_slot_that_left_the_window_is_freed_on_the_full_side():
    pool: Any = SlidingAllocator(16, 8, 1)
    slots = pool.alloc(3)
    pool.free_swa(slots[:1])

    refused(pool, "padding would enter the sliding free list", lambda: pool.free(slots))
    pool.free_full(slots[:1])
    pool.free(slots[1:])
    assert pool.available_size() == 8


@pytest.mark.parametrize("build", [sliding, unified])
def test_a_request_does_not_go_on_in_a_page_that_left_the_window(build):
    pool = build()
    slots = pool.alloc_extend(ids([0]), ids([6]), ids([-1]))
    pool.free_swa(slots)

    refused(
        pool,
        r"request 0 of the batch goes on within a page \(6 tokens so far\)",
        lambda: pool.alloc_decode(ids([7]), slots[-1:]),
    )


@pytest.mark.parametrize("build", [sliding, unified, ring])
def test_a_sliding_tail_starts_on_a_page(build):
    pool = build()

    def tail(length, prefix=(0,), seq=(10,), last=(-1,)):
        return pool.alloc_extend_swa_tail(
            ids(list(prefix)), ids(list(seq)), ids(list(last)), swa_tail_len=length
        )

    refused(pool, "a sliding tail of 5 tokens starts at position 5", lambda: tail(5))
    refused(pool, "a sliding tail of 11 of 10 new tokens", lambda: tail(11))
    refused(pool, "a sliding tail of -1 of 10", lambda: tail(-1))
    refused(pool, "for a batch of 2", lambda: tail(4, (0, 0), (4, 4), (-1, -1)))
    assert len(tail(2)) == 10


@pytest.mark.parametrize("page_size", [4, 16])
def test_a_refused_sliding_decode_takes_nothing_on_either_side(page_size):
    pool: Any = SlidingAllocator(8 * page_size, 2 * page_size, page_size)
    slots = pool.alloc(2 * page_size)
    before = contents(pool)
    last_loc = slots[page_size - 1 :: page_size]

    assert pool.alloc_decode(ids([page_size + 1] * 2), last_loc) is None
    assert contents(pool) == before
    assert pool.full_available_size() == 6 * page_size


def test_a_chain_goes_on_where_it_began():
    pool: Any = InterleavedAllocator(32, 4, shard_size=2)
    slots = pool.alloc_extend(ids([0]), ids([4]), ids([-1]), rotation_bases=[None])

    def extend(prefix=4, seq=8, bases=(0,)):
        return pool.alloc_extend(ids([prefix]), ids([seq]), slots[-1:], rotation_bases=list(bases))

    refused(
        pool, "request 0 of the batch goes on at rank 0, but its last", lambda: extend(bases=(1,))
    )
    refused(pool, "extends from 2 to 8 tokens", lambda: extend(prefix=2))
    refused(pool, "extends from 4 to 4 tokens", lambda: extend(seq=4))
    refused(pool, "2 rotation bases for a batch of 1", lambda: extend(bases=(0, 0)))
    refused(pool, "4 tokens without a chain", lambda: pool.alloc(4))
    refused(pool, "1 requests decode", lambda: pool.alloc_decode(ids([5]), slots[-1:]))
    refused(pool, "slot 7 is a padding slot", lambda: pool.free(ids([7])))


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: PagedAllocator(65, 4), "a pool of 65 tokens is no whole number of pages of 4"),
        (lambda: PagedAllocator(-4, 4), "a pool of -4 tokens"),
        (lambda: PagedAllocator(64, 0), "a page of 0 tokens"),
        (lambda: TokenAllocator(-1), "a pool of -1 tokens"),
        (lambda: SlidingAllocator(64, 30, 4), "a pool of 30 tokens"),
        (lambda: InterleavedAllocator(64, 4, shard_size=1), "striped over 1 ranks"),
        (lambda: SparseAllocator(64, 4, host_to_device_ratio=0), "0 logical tokens"),
        (lambda: SparseAllocator(64, 4, spec_scratch_tokens=6), "spec_scratch_tokens is 6"),
        (lambda: SparseAllocator(64, 4, device_buffer_tokens=-4), "device_buffer_tokens is -4"),
        (
            lambda: RingAllocator(64, 4, ring_size=0, rows=StateSlotAllocator(1)),
            "a ring of 0 tokens",
        ),
        (lambda: CompressedAllocator(64, 64, 64), "no whole number of blocks of 128"),
        (lambda: CompressedAllocator(256, 256, window_ring=0), "state rings of 0"),
        (lambda: StateSlotAllocator(-1), "a pool of -1 state slots"),
        (lambda: UnifiedAllocator(64, 4, full_token_bytes=1), "0 sliding and 0 state bytes"),
        (lambda: UnifiedAllocator(64, 0, full_token_bytes=1, swa_token_bytes=1), "a page of 0"),
        (
            lambda: UnifiedAllocator(64, 4, full_token_bytes=0, swa_token_bytes=1),
            "a page of the full pool has 0 bytes",
        ),
        (
            lambda: UnifiedAllocator(7, 4, full_token_bytes=2, swa_token_bytes=1),
            "a buffer of 7 bytes does not hold the padding page",
        ),
    ],
)
def test_pools_that_cannot_be_are_refused(build, match):
    with pytest.raises(PoolError, match=match):
        build()


def test_lengths_on_a_device_need_their_host_copies():
    pool = paged()
    there = torch.empty(1, dtype=torch.int64, device="meta")

    refused(
        pool,
        "'prefix_lens' lies on meta and has no host copy",
        lambda: pool.alloc_extend(there, there, there),
    )
    refused(
        pool,
        "'seq_lens' has 1 entries, its host copy 2",
        lambda: pool.alloc_decode(there, there, seq_lens_cpu=ids([1, 2])),
    )


def test_a_planted_fault_shows_in_the_books():
    pool = paged()
    pool.alloc(8)

    pool.free_list.put_front(ids([1]))
    assert pool.verify_accounting() == ["page 1 is free and handed out at once"]
    pool.free_list.take(2)
    assert pool.verify_accounting() == ["1 pages are neither free nor handed out"]


def test_a_planted_duplicate_or_mapping_fault_shows_in_the_books():
    pool = sliding()
    slots = pool.alloc_extend(ids([0]), ids([6]), ids([-1]))

    pool.full_to_swa[slots[1]] = pool.full_to_swa[slots[5]]
    assert "two slots map to one slot of the second pool" in pool.verify_accounting()
    pool.full_to_swa[slots] = 0
    assert pool.verify_accounting() == [
        "2 pages of the second pool are handed out and mapped to by nothing"
    ]

    unchecked = PagedAllocator(16, 4, checks=False)
    unchecked.alloc(8)
    unchecked.free_list.put_front(ids([3]))
    assert unchecked.verify_accounting() == ["page 3 stands twice in the free list"]


def test_a_full_page_that_two_requests_share_is_no_misuse():
    pool = PagedAllocator(size=64, page_size=4)
    slots = pool.alloc_extend(ids([0]), ids([4]), ids([-1]))
    assert slots is not None
    last = int(slots[-1])

    grown = pool.alloc_decode(ids([5, 5]), ids([last, last]))

    assert grown is not None
    assert grown.tolist() == [8, 12]
    assert pool.verify_accounting() == []
