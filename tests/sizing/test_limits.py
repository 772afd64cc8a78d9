"""Limits: what a remedy prints is what a launch with its flag gives, in every family."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kvplan.sizing.limits import Limit, request_limits, token_limits
from kvplan.sizing.plan import Plan
from tests.sizing.launched import planned
from tests.sizing.odd_launches import NAMES, drawn
from tests.sizing.resolve.launches import MI300X, dense, hybrid


def changes(flag: str) -> dict[str, Any]:
    """The arguments that a printed flag sets, as a launch would give them."""
    if flag.startswith("without "):
        return {flag.removeprefix("without --").replace("-", "_"): None}
    name, value = flag.removeprefix("--").split(" ")
    number: Any = value
    if value.replace(".", "", 1).isdigit():
        number = float(value) if "." in value else int(value)
    return {name.replace("-", "_"): number}


@pytest.mark.parametrize("name", NAMES)
def test_every_remedy_gives_the_value_that_it_prints(name):
    random, tried = Random(name), 0
    for _ in range(40):
        launch = drawn(name, random)
        plan = launch.outcome()
        if not isinstance(plan, Plan):
            continue
        for limit, figure in (
            *((each, "tokens") for each in token_limits(plan)),
            *((each, "max_running_requests") for each in request_limits(plan)),
        ):
            for remedy in limit.remedies:
                tried += 1
                other = launch.outcome(**changes(remedy.flag))
                assert isinstance(other, Plan), (launch, remedy)
                assert getattr(other, figure) == remedy.value > getattr(plan, figure)
    assert tried >= 5


@pytest.mark.parametrize("name", NAMES)
def test_the_tightest_bounds_are_the_plan_s_own_figures(name):
    random = Random(name)
    for _ in range(40):
        plan = drawn(name, random).outcome()
        if not isinstance(plan, Plan):
            continue
        tokens = tightest(token_limits(plan))
        page = plan.resolved.page_size
        assert plan.tokens in (tokens, tokens // page * page)
        assert tightest(request_limits(plan)) == plan.max_running_requests


def tightest(limits: tuple[Limit, ...]) -> int:
    """The least value; it is among those that bind."""
    least = min(limit.value for limit in limits)
    assert any(limit.binds and limit.value == least for limit in limits)
    return least


def test_a_stage_without_kv_bounds_nothing():
    # four layers in four stages: the full one is the last
    plan = planned(hybrid(), pp_size=4, tp_size=1)

    names = [limit.name for limit in token_limits(plan)]
    assert names == ["tokens of stage 3"]


def test_a_remedy_resolves_what_hangs_on_its_flag():
    # twice the running requests: more and larger decode graphs, less memory for tokens
    plan = planned(dense(), mem_fraction_static=None, max_running_requests=100)

    (bound,) = [limit for limit in request_limits(plan) if limit.binds]
    (remedy,) = bound.remedies
    again = planned(dense(), mem_fraction_static=None, max_running_requests=200)
    assert remedy.flag == "--max-running-requests 200"
    assert remedy.value == again.max_running_requests
    assert again.resolved.mem_fraction_static <= plan.resolved.mem_fraction_static


def test_a_fraction_is_named_as_a_launch_gives_it_where_aiter_takes_a_share():
    plan = planned(dense(), MI300X, mem_fraction_static=0.8)

    assert plan.resolved.mem_fraction_static == pytest.approx(0.8 * 0.85)
    flags = [remedy.flag for limit in token_limits(plan) for remedy in limit.remedies]
    assert "--mem-fraction-static 0.81" in flags
