"""Hash counts: exactly the block sizes that fit are named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.replay.workloads.blocks import Sizes, covering, leading, sizes_by_ceil, sizes_by_floor
from kvplan.replay.workloads.rows import BadRow

input_lens = st.integers(1, 5_000)
nums = st.integers(0, 200)


@given(input_lens, nums, st.integers(1, 6_000))
def test_sizes_by_ceil_are_those_that_give_the_count(input_len, num_ids, size):
    assert (size in sizes_by_ceil(input_len, num_ids)) == (-(-input_len // size) == num_ids)


@given(input_lens, nums, st.integers(1, 6_000))
def test_sizes_by_floor_are_those_that_give_the_count(input_len, num_ids, size):
    assert (size in sizes_by_floor(input_len, num_ids)) == (input_len // size == num_ids)


@given(input_lens, st.integers(1, 3_000))
def test_the_right_count_becomes_an_identity_and_any_other_is_refused(input_len, size):
    whole, part = input_len // size, -(-input_len // size)

    assert (covering(tuple(range(part)), input_len, size)).ids == tuple(range(part))  # type: ignore[union-attr]
    with pytest.raises(
        BadRow, match=f"{part + 1} hash ids do not fit an input of {input_len} tokens"
    ):
        covering(tuple(range(part + 1)), input_len, size)
    found = leading(tuple(range(whole)), input_len, size, "n")
    assert (found.ids if found else ()) == tuple(range(whole))
    with pytest.raises(
        BadRow, match=f"{whole + 1} hash ids do not fit an input of {input_len} tokens"
    ):
        leading(tuple(range(whole + 1)), input_len, size)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        (Sizes(16, 16), "16"),
        (Sizes(300, 700), "512"),
        (Sizes(342, 511), "342 to 511"),
        (Sizes(343, 343), "343"),
        (Sizes(5_000), "5000 or more"),
        (Sizes(9, 3), "none"),
    ],
)
def test_fitting_sizes_are_put_into_words(sizes, words):
    assert sizes.describe() == words


def test_only_a_size_that_fits_every_row_is_named():
    sizes = Sizes()
    for input_len, num_ids in [(6_758, 14), (7_322, 15), (2_290, 5)]:
        sizes.narrow(sizes_by_ceil(input_len, num_ids))

    assert (sizes.low, sizes.high, sizes.usual()) == (489, 519, 512)
