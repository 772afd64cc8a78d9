"""Searching along a row finds what trying every value finds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.search.boundary import edge_holding, first_holding, last_holding, samples, spread

counts = st.integers(1, 5000)
points = st.integers(8, 1200)


def stretch(count, low, high):
    """Holds from low to high, nowhere else."""
    holding = range(count)[low:high]
    return holding, lambda index: index in holding


@given(counts, points, st.integers(0, 5000))
def test_what_starts_to_hold_is_found_at_its_first_value(count, points, low):
    holding, holds = stretch(count, low, count)

    assert first_holding(count, holds, points=points) == (holding[0] if holding else None)
    assert last_holding(count, holds, points=points) == (holding[-1] if holding else None)


@given(counts, points, st.integers(0, 5000))
def test_what_ceases_to_hold_is_found_at_its_last_value(count, points, high):
    holding, holds = stretch(count, 0, high)

    assert first_holding(count, holds, points=points) == (holding[0] if holding else None)
    assert last_holding(count, holds, points=points) == (holding[-1] if holding else None)


@given(st.integers(1, 1000), st.data())
def test_few_values_are_all_tried(count, data):
    held = set(data.draw(st.lists(st.integers(0, count - 1))))

    assert first_holding(count, held.__contains__, points=1000) == min(held, default=None)
    assert last_holding(count, held.__contains__, points=1000) == max(held, default=None)


@given(counts, points, st.integers(0, 5000), st.integers(1, 5000))
def test_a_mark_inside_a_stretch_finds_its_ends(count, points, low, length):
    holding, holds = stretch(count, low, low + length)
    if holding:
        inside = (holding[len(holding) // 2],)

        assert first_holding(count, holds, points=points, marks=inside) == holding[0]
        assert last_holding(count, holds, points=points, marks=inside) == holding[-1]


@given(counts, st.integers(8, 40), st.integers(0, 5000), st.booleans(), st.booleans())
def test_the_stretch_at_the_roomy_end_has_its_ends_found(count, points, size, high, tight):
    size = min(size, count)
    holding = range(count - size, count) if high else range(size)
    found = edge_holding(count, holding.__contains__, roomy_high=high, tight=tight, points=points)

    if not size:
        assert found is None
    else:
        low_end = high == tight
        assert found == (holding[0] if low_end else holding[-1])


def test_a_hole_ends_the_stretch():
    def holds(index):
        return index != 40

    assert edge_holding(100, holds, roomy_high=True, tight=True, points=101) == 41
    assert edge_holding(100, holds, roomy_high=False, tight=True, points=101) == 39


@given(counts, points, st.lists(st.integers(-5, 6000)))
def test_samples_rise_within_the_row_and_hold_both_ends(count, points, marks):
    for found in (samples(count, points, marks), spread(count, points)):
        assert found[0] == 0
        assert found[-1] == count - 1
        assert found == sorted(set(found)) if count > points else list(range(count))


@pytest.mark.parametrize("finder", [first_holding, last_holding])
def test_a_long_row_takes_few_tries(finder):
    tried = []

    def holds(index):
        tried.append(index)
        return index >= 777_777

    assert finder(10**6, holds, points=64) == (777_777 if finder is first_holding else 999_999)
    assert len(tried) <= 64 + 20
