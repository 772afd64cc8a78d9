"""The circular free list keeps the order of a plain list."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvplan.allocators.free_list import FreeList
from kvplan.errors import PoolError
from tests.allocators.machine import ids

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["take", "front", "back", "stage", "stage_first", "merge"]),
        st.integers(0, 6),
    ),
    max_size=40,
)


@given(size=st.integers(0, 12), operations=OPERATIONS)
def test_ids_go_out_in_the_order_of_a_plain_list(size, operations):
    free = FreeList(torch.arange(1, size + 1))
    listed = list(range(1, size + 1))
    staged: list[int] = []
    out: list[int] = []
    for operation, number in operations:
        if operation == "take":
            number = min(number, len(listed))
            assert free.peek(number).tolist() == listed[:number]
            out += free.take(number).tolist()
            listed = listed[number:]
        elif operation == "merge":
            free.merge_and_sort()
            if staged:
                listed, staged = sorted(listed + staged), []
        else:
            back, out = out[:number], out[number:]
            if operation == "front":
                free.put_front(ids(back))
                listed = back + listed
            elif operation == "back":
                free.put_back(ids(back))
                listed += back
            else:
                free.stage(ids(back), first=operation == "stage_first")
                staged = back + staged if operation == "stage_first" else staged + back

        assert free.listed().tolist() == listed
        assert free.staged().tolist() == staged
        assert free.ids().tolist() == listed + staged
        assert (len(free), free.num_free) == (len(listed), len(listed) + len(staged))


@pytest.mark.parametrize("give", [FreeList.put_front, FreeList.put_back, FreeList.stage])
def test_more_ids_than_there_are_never_come_back(give):
    free = FreeList(torch.arange(1, 4))
    free.take(1)

    with pytest.raises(PoolError, match="2 ids come back to a free list of 3 that already holds 2"):
        give(free, ids([1, 1]))
    assert free.ids().tolist() == [2, 3]
