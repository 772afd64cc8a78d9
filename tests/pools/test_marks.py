"""Marks survive every kind of cache, and a foreign byte in them is seen."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from kvplan.errors import PoolError
from kvplan.pools.marks import mark, unmark


@given(
    st.lists(st.integers(0, 8**7 - 1), max_size=20),
    st.sampled_from([(1, 8), (2, 8), (1, 576), (4, 128), (1, 16)]),
)
def test_a_mark_reads_back_as_its_number(numbers, row):
    given_numbers = torch.tensor(numbers, dtype=torch.long)

    assert torch.equal(unmark(mark(given_numbers, row)), given_numbers)


@given(st.integers(0, 8**7 - 1), st.integers(0, 63), st.sampled_from([0.0, 1.0, 6.0]))
def test_one_foreign_value_is_seen(number, lane, value):
    values = mark(torch.tensor([number]), (1, 64))
    changed = values.clone()
    changed[0, 0, lane] = value

    found = unmark(changed).item()

    assert (found == number) == torch.equal(changed, values)


def test_numbers_that_do_not_fit_are_refused():
    with pytest.raises(PoolError, match="marks numbers below 2097152, not 2097152"):
        mark(torch.tensor([8**7]), (1, 8))
    with pytest.raises(PoolError, match="no room"):
        mark(torch.tensor([0]), (1, 1))
