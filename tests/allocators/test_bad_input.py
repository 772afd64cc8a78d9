"""Inputs that no allocator can mean: ids of another type, lengths beyond reason, no memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kvplan.allocators.demand import LONGEST
from kvplan.allocators.paged import PagedAllocator
from kvplan.allocators.sliding import SlidingAllocator
from kvplan.allocators.slots import StateSlotAllocator
from kvplan.allocators.sparse import SparseAllocator
from kvplan.allocators.state_band import StateBand
from kvplan.allocators.unified import UnifiedAllocator
from kvplan.errors import DeviceError
from tests.allocators.machine import ids
from tests.allocators.refusing import (
    ALL,
    PAGED,
    compressed,
    first_extend,
    interleaved,
    paged,
    refused,
    sparse,
    unified,
)

OTHER_TYPES = {
    "int32": lambda slots: slots.int(),
    "float": lambda slots: slots.double(),
    "a table": lambda slots: slots.reshape(-1, 1),
}


@pytest.mark.parametrize("other", OTHER_TYPES)
@pytest.mark.parametrize("build", ALL)
def test_ids_that_are_no_int64_row_are_refused_before_anything_goes(build, other):
    pool = build()
    slots = first_extend(pool, 8)
    wrong = OTHER_TYPES[other](slots)
    pages = OTHER_TYPES[other](slots[:: pool.page_size] // pool.page_size)
    frees: dict[str, Any] = {
        "free": lambda: pool.free(wrong),
        "free_full": lambda: pool.free_full(wrong),
        "free_segment": lambda: pool.free_segment(wrong, start_pos=0),
        "free_segments": lambda: pool.free_segments([(wrong, 0)]),
        "free_full_segment": lambda: pool.free_full_segment(wrong, start_pos=0),
        "free_page_ids": lambda: pool.free_page_ids(pages),
    }
    for name in ("free_swa", "free_swa_segment"):
        if hasattr(pool, name):
            segment = {"start_pos": 0} if name.endswith("segment") else {}
            frees[name] = partial(getattr(pool, name), wrong, **segment)

    for call in frees.values():
        refused(pool, r"'(index|page_ids)' is torch\.", call)
    pool.free_group_begin()
    for call in frees.values():
        refused(pool, r"'(index|page_ids)' is torch\.", call)


@pytest.mark.parametrize("other", OTHER_TYPES)
@pytest.mark.parametrize("build", PAGED)
def test_lengths_and_last_slots_of_another_type_are_refused(build, other):
    pool = build()
    last_loc = first_extend(pool, 6)[-1:]
    good = {"prefix_lens": ids([6]), "seq_lens": ids([9]), "last_loc": last_loc}

    for name in good:
        wrong = good | {name: OTHER_TYPES[other](good[name])}
        refused(pool, f"'{name}' is torch", partial(pool.alloc_extend, **wrong))
    for name in ("seq_lens", "last_loc"):
        decode = {"seq_lens": ids([7]), "last_loc": last_loc}
        wrong = decode | {name: OTHER_TYPES[other](decode[name])}
        refused(pool, f"'{name}' is torch", partial(pool.alloc_decode, **wrong))
    refused(
        pool,
        "'seq_lens_cpu' is torch",
        lambda: pool.alloc_decode(ids([7]), last_loc, seq_lens_cpu=OTHER_TYPES[other](ids([7]))),
    )


def test_state_slots_of_another_type_are_refused():
    pool = StateSlotAllocator(8)
    slots = pool.alloc(3)
    assert slots is not None

    refused(pool, "'index' is torch.int32", lambda: pool.free(slots.int()))


@pytest.mark.parametrize("length", [LONGEST + 1, 2**62, 2**63 - 1])
@pytest.mark.parametrize("build", [*PAGED, compressed])
def test_lengths_beyond_reason_name_the_request(build, length):
    pool = build()

    refused(
        pool,
        f"request 1 of the batch has {length} tokens",
        lambda: pool.alloc_extend(ids([0] * 4), ids([1, *[length] * 3]), ids([-1] * 4)),
    )
    refused(
        pool,
        f"request 1 of the batch decodes to {length} tokens",
        lambda: pool.alloc_decode(ids([1, length]), ids([-1, -1])),
    )


@pytest.mark.parametrize("build", [*PAGED, compressed])
def test_more_than_fits_is_no_misuse(build):
    pool = build()

    assert pool.alloc(2**62) is None
    assert pool.alloc_extend(ids([0]), ids([LONGEST]), ids([-1])) is None
    assert pool.alloc_extend(ids([0] * 300), ids([LONGEST] * 300), ids([-1] * 300)) is None
    assert pool.verify_accounting() == []


@pytest.mark.parametrize("last", [-5, 0, 3, 2**62 + 3])
@pytest.mark.parametrize("build", [*PAGED, compressed])
def test_a_last_loc_without_a_prefix_is_refused(build, last):
    pool = build()

    refused(
        pool,
        f"request 0 of the batch has last_loc {last} and no prefix",
        lambda: pool.alloc_extend(ids([0]), ids([9]), ids([last])),
    )
    refused(
        pool,
        f"request 0 of the batch has last_loc {last} and no prefix",
        lambda: pool.alloc_decode(ids([1]), ids([last])),
    )


@pytest.mark.parametrize("last", [-1, -5, 3, 4 * 9 + 3, 2**62 + 3])
@pytest.mark.parametrize("build", [*PAGED, compressed])
def test_the_last_loc_of_a_full_page_is_owned_too(build, last):
    pool = build()
    first_extend(pool, 4)

    refused(
        pool,
        f"request 0 of the batch has last_loc {last}, a slot of a page that is not handed out",
        lambda: pool.alloc_extend(ids([4]), ids([9]), ids([last])),
    )


@pytest.mark.parametrize("build", [*PAGED, compressed])
def test_two_requests_do_not_go_on_within_one_page(build):
    pool = build()
    slots = first_extend(pool, 6)
    full, last = int(slots[3]), int(slots[5])
    match = f"requests 1 and 2 of the batch both go on within page {last // 4}"

    refused(
        pool,
        match,
        lambda: pool.alloc_extend(ids([0, 6, 6]), ids([9, 7, 8]), ids([-1, last, last])),
    )
    refused(pool, match, lambda: pool.alloc_decode(ids([1, 7, 7]), ids([-1, last, last])))
    # a full page may be the last one of several requests
    assert pool.alloc_extend(ids([4, 4]), ids([5, 5]), ids([full, full])) is not None


@pytest.mark.parametrize("build", ALL)
def test_page_ids_that_wrap_around_are_foreign(build):
    pool = build()
    pages = first_extend(pool, 8)[:: pool.page_size] // pool.page_size

    refused(
        pool,
        "is foreign: the pool ends at slot",
        lambda: (
            pool.free_page_ids(pages + 2**64 // pool.page_size)
            if pool.page_size > 1
            else pool.free_page_ids(pages + 2**62)
        ),
    )


def sizes(pool: Any, *bad: Any) -> list[tuple[Any, ...]]:
    """Arguments of a resize of which exactly one is bad."""
    if isinstance(pool, SlidingAllocator):
        return [(32, each) for each in bad] + [(each, 32) for each in bad]
    return [(each,) for each in bad]


@pytest.mark.parametrize("build", ALL)
def test_a_refused_resize_leaves_what_was_handed_out(build):
    pool = build()
    slots = first_extend(pool, 8)

    for arguments in sizes(pool, -4):
        refused(pool, "-", partial(pool.resize, *arguments))
    pool.free(slots)
    assert pool.verify_accounting() == []


def test_a_device_side_of_broken_pages_leaves_the_logical_side():
    pool = sparse()
    slots = first_extend(pool, 8)

    refused(pool, "a pool of 6 tokens is no whole", lambda: pool.resize(6))
    pool.free(slots)
    assert pool.available_size() == 64


@pytest.mark.parametrize("build", ALL)
def test_no_memory_is_refused_and_leaves_what_was_handed_out(build):
    pool = build()
    slots = first_extend(pool, 8)

    for tokens in (2**52, 2**62):
        for arguments in sizes(pool, tokens):
            refused(
                pool,
                "cpu has no room for the tables of",
                partial(pool.resize, *arguments),
                DeviceError,
            )
    pool.free(slots)
    assert pool.verify_accounting() == []


@pytest.mark.parametrize("tokens", [2**52, 2**62])
def test_an_allocator_too_large_to_be_made_is_refused(tokens):
    for make in (
        lambda: PagedAllocator(tokens, 16),
        lambda: SlidingAllocator(16, tokens, 16),
        lambda: SparseAllocator(tokens, 16),
        lambda: StateSlotAllocator(tokens),
        lambda: UnifiedAllocator(tokens, 4, full_token_bytes=4, swa_token_bytes=2),
    ):
        with pytest.raises(DeviceError, match="has no room for the tables of"):
            make()


def test_state_slots_of_a_shared_buffer_grow_with_it_alone():
    pool = UnifiedAllocator(4096, 4, full_token_bytes=4, state_slot_bytes=64)
    states = pool.state_slots
    assert isinstance(states, StateBand)
    states.alloc(3)

    refused(
        states, "slots do not fit into 4096 shared bytes", lambda: states.resize(states.size + 1)
    )
    states.resize(2)
    assert states.available_size() == states.size == 2
    assert pool.verify_accounting() == []


@pytest.mark.parametrize("build", [paged, unified, interleaved])
def test_slots_of_a_dropped_group_are_not_freed_at_its_end(build):
    pool = build()
    slots = first_extend(pool, 8)
    pool.free_group_begin()
    pool.free(slots)
    pool.clear()

    refused(pool, "no free group is open", pool.free_group_end)
    assert pool.available_size() == pool.size
