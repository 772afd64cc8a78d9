"""The front is what its definition says, whatever the order and the number of objectives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.search.pareto import Objectives, front

numbers = st.integers(0, 6) | st.sampled_from([0.5, 1.0, 2.5])


@st.composite
def points(draw):
    width = draw(st.integers(1, 4))
    return draw(st.lists(st.tuples(*[numbers] * width), max_size=40))


def beats(one, other):
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))


@given(points())
def test_the_front_is_what_nothing_beats(vectors):
    expected = {one for one in vectors if not any(beats(other, one) for other in vectors)}

    found = front(vectors)

    assert set(found) == expected
    assert len(found) == len(expected)
    assert found == sorted(found, reverse=True)


@given(points(), st.integers(0, 40))
def test_a_front_of_fronts_is_the_front(vectors, cut):
    assert front([*front(vectors[:cut]), *vectors[cut:]]) == front(vectors)


@pytest.mark.parametrize(
    ("cells", "vector"),
    [([5, 2, 3.5], (5, 2, -3.5)), ([5, None, 1], None), ([0, 0, 0], (0, 0, 0))],
)
def test_less_of_what_is_minimised_is_more(cells, vector):
    objectives = Objectives(maximise=("tokens", "requests"), minimise=("gpus",))

    assert objectives.vector(cells) == vector
