"""DeepSeek-V4's views: which slot of which pool belongs to a token."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.allocators.compressed import CompressedAllocator
from kvplan.errors import PoolError
from tests.allocators.machine import ids


def pool(**options: Any) -> Any:
    return CompressedAllocator(2048, 1024, **options)


def test_the_pools_follow_the_full_pages():
    assert pool().pool_sizes() == {"full": 2048, "swa": 1024, "c4": 512, "c128": 16}
    assert pool().compressed_page_size(4) == 64
    assert pool().compressed_page_size(128) == 2


def test_a_block_is_written_with_its_last_token():
    slots = pool().alloc_extend(ids([0]), ids([300]), ids([-1]))

    assert pool().compressed_slots(slots, 4).tolist() == list(range(64, 64 + 75))
    assert pool().compressed_slots(slots, 128).tolist() == [2, 3]
    assert pool().compressed_last_loc(ids([-1, 255, 256, 258, 259]), 4).tolist() == [
        -1,
        63,
        63,
        63,
        64,
    ]


def test_state_waits_in_the_ring_of_a_page_or_a_row():
    compressed = pool(window_ring=8, row_ring=128)

    assert compressed.window_state_slots(ids([256, 263, 264, 512, -1])).tolist() == [
        8,
        15,
        8,
        16,
        -1,
    ]
    rows, positions = ids([1, 1, 3, 2]), ids([0, 129, 127, -1])
    assert compressed.row_state_slots(rows, positions).tolist() == [128, 129, 511, -1]


def test_an_unknown_ratio_names_the_known_ones():
    with pytest.raises(PoolError, match="no pool is compressed by 8") as refused:
        pool().compressed_slots(ids([1]), 8)

    assert refused.value.hint == "the ratios are 4, 128"
