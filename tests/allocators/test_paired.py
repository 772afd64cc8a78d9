"""Two sides in step: the table that joins them, device buffers, tails."""

from __future__ import annotations

import pytest

from kvplan.allocators.sliding import SlidingAllocator
from tests.allocators.machine import ids
from tests.allocators.refusing import compressed, first_extend, sliding, sparse


@pytest.mark.parametrize("build", [sliding, compressed, sparse])
def test_a_table_once_registered_is_read_after_a_clear(build):
    pool = build()
    table = pool.table
    slots = first_extend(pool, 6)
    assert bool((table[slots] > 0).all())

    pool.clear()
    assert table is pool.table
    assert table.tolist() == [0] * (len(table) - 1) + [-1]


def test_a_buffer_takes_all_device_pages_of_a_request_that_grew_by_turns():
    pool = sparse()
    slots: list[int] = []
    for _ in range(3):
        # one token with a device slot opens each page, three without fill it
        last = slots[-1:] or [-1]
        length = len(slots)
        slots += pool.alloc_extend(ids([length]), ids([length + 1]), ids(last)).tolist()
        for _ in range(3):
            slots += pool.alloc_decode(ids([len(slots) + 1]), ids(slots[-1:])).tolist()
    assert pool.device_available_size() == 64 - 12

    buffer = pool.alloc_device_buffer(ids(slots), 8)
    assert buffer is not None
    assert buffer.tolist() == list(range(4, 12))
    assert not pool.to_device(ids(slots)).any()
    assert pool.device_available_size() == 64 - 8
    assert pool.verify_accounting() == []


def test_a_buffer_of_part_of_a_page_unmaps_the_page():
    pool = sparse()
    slots = first_extend(pool, 4)

    assert pool.alloc_device_buffer(slots[:2], 4) is not None
    assert pool.to_device(slots).tolist() == [0, 0, 0, 0]
    assert pool.verify_accounting() == []


def test_an_empty_tail_leaves_staged_sliding_pages_staged():
    pool = SlidingAllocator(32, 8, 4, need_sort=True)
    slots = pool.alloc(8)
    assert slots is not None
    pool.free(slots)

    assert pool.alloc_extend_swa_tail(ids([0]), ids([4]), ids([-1]), swa_tail_len=0) is not None
    assert (len(pool.swa.free_list), pool.swa.free_list.num_staged) == (0, 2)
    assert pool.alloc_extend_swa_tail(ids([0]), ids([4]), ids([-1]), swa_tail_len=4) is not None
    assert pool.swa.free_list.num_staged == 0
