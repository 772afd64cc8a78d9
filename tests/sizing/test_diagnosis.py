"""Cures: each starts the launch, and its neighbour towards the current value does not."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.sizing.budget import Memory
from kvplan.sizing.diagnosis import Cure, cures, knobs, nearest, smaller_knobs
from kvplan.sizing.overcommitted import missing_bytes
from kvplan.sizing.plan import NoStart, Plan
from tests.sizing.launched import GIB, outcome
from tests.sizing.odd_launches import NAMES, Drawn, drawn
from tests.sizing.resolve.launches import H100, dense, hybrid


def field_of(cure: Cure) -> str:
    return cure.flag.removeprefix("--").replace("-", "_")


def value_of(cure: Cure) -> int | float:
    return float(cure.value) if "." in cure.value else int(cure.value)


def starts(found: Plan | NoStart | None) -> bool:
    """Sized by the engine, and held by the card."""
    return isinstance(found, Plan) and not missing_bytes(found)


def neighbour(refused: NoStart | Plan, cure: Cure) -> int | float | None:
    """The next value on the way back; None where that is the launch's own."""
    moves = knobs(refused) if isinstance(refused, NoStart) else smaller_knobs(refused)
    knob = next(each for each in moves if each.field == field_of(cure))
    position = round(value_of(cure) * knob.divisor / knob.step)
    back = position + (1 if knob.last < knob.current else -1)
    return None if back == knob.current else knob.value(back)


@pytest.mark.parametrize("name", NAMES)
def test_every_cure_starts_and_its_neighbour_does_not(name):
    random = Random(name)
    for _ in range(60):
        launch = drawn(name, random)
        refused = launch.outcome()
        if refused is not None and not starts(refused):
            for cure in cures(refused):
                check(launch, refused, cure)


def check(launch: Drawn, refused: NoStart | Plan, cure: Cure) -> None:
    cured = launch.outcome(**{field_of(cure): value_of(cure)})
    assert starts(cured), (launch, cure)
    assert isinstance(cured, Plan)
    assert cured.tokens == cure.tokens
    back = neighbour(refused, cure)
    if back is not None:
        assert not starts(launch.outcome(**{field_of(cure): back})), (launch, cure)


def test_launches_that_do_not_start_find_cures():
    found: set[str] = set()
    for name in NAMES:
        random = Random(name)
        for _ in range(60):
            refused = drawn(name, random).outcome()
            if isinstance(refused, NoStart):
                found.update(field_of(cure) for cure in cures(refused))
    assert found >= {
        "mem_fraction_static",
        "max_running_requests",
        "max_mamba_cache_size",
        "swa_full_tokens_ratio",
    }


def test_too_many_state_slots_are_lowered_to_the_most_that_fit():
    memory = Memory(64.0, 40.0)
    refused = outcome(hybrid(), H100, None, memory, max_mamba_cache_size=10**6)

    assert isinstance(refused, NoStart)
    (cure,) = [each for each in cures(refused) if each.flag == "--max-mamba-cache-size"]
    # 8 GiB hold 1,334 slots of 6,438,912 B; one is padding, and KV needs a token
    assert int(cure.value) == 8 * GIB // 6438912 - 1
    assert cure.action == "lower"


@pytest.mark.parametrize(("cap", "least"), [(1, 2), (63, 64)])
def test_a_cap_below_what_one_request_needs_is_raised(cap, least):
    page = 1 if least == 2 else 64
    refused = outcome(dense(), H100, None, Memory(64.0, 40.0), max_total_tokens=cap, page_size=page)

    assert isinstance(refused, NoStart)
    assert [(each.flag, each.action, each.value, each.tokens) for each in cures(refused)] == [
        ("--max-total-tokens", "raise", str(least), least)
    ]


@given(
    current=st.integers(0, 3000),
    last=st.integers(0, 3000),
    low=st.integers(0, 3000),
    high=st.integers(0, 3000),
)
def test_the_nearest_position_works_and_the_one_before_it_does_not(current, last, low, high):
    def works(position: int) -> bool:
        return position != current and position in range(low, high + 1)

    found = nearest(current, last, works)

    if found is None:
        first, final = min(current + 1, last), max(current - 1, last)
        between = range(max(low, first), min(high, final) + 1)
        # half of what lies between is met by some stride
        assert len(between) <= abs(last - current) / 2 + 1 or current == last
        return
    assert works(found)
    back = found + (1 if last < current else -1)
    assert not works(back)
