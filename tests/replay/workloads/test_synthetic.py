"""Made-up workloads: the same for the same seed, and as their file says."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from statistics import mean, pstdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.errors import InputError
from kvplan.replay.keys import key_of
from kvplan.replay.requests import BlockIds, Request
from kvplan.replay.workloads.arrivals import (
    AtOnce,
    Bursts,
    Constant,
    Gamma,
    Poisson,
    arrival_times,
)
from kvplan.replay.workloads.lengths import (
    Empirical,
    Fixed,
    Lognormal,
    Quantiles,
    Uniform,
    Zipf,
    drawer,
)
from tests.replay.workloads.helpers import DATA, opened, requests, token_ids

PLAIN = """\
seed: 1
requests: 50
arrivals: {process: constant, requests_per_s: 4.0}
input: 100
output: 20
"""


def made(tmp_path, text: str) -> list:
    path = tmp_path / "made.yaml"
    path.write_text(text)
    return requests(path)


def first(process, count: int, seed: str = "s") -> list[float]:
    times = arrival_times(process, seed)
    return [next(times) / 1e9 for _ in range(count)]


def gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


def draw(lengths, count: int = 20_000) -> list[int]:
    random, one = Random("lengths"), drawer(lengths)
    return [one(random) for _ in range(count)]


def test_constant_arrivals_and_lengths_are_exact(tmp_path):
    found = made(tmp_path, PLAIN)

    assert [request.t_ns for request in found] == [n * 250_000_000 for n in range(50)]
    assert {(request.input_len, request.output_len, request.max_new) for request in found} == {
        (100, 20, None)
    }


@pytest.mark.parametrize("name", ["synthetic.yaml", "synthetic_sessions.yaml"])
def test_the_same_seed_gives_the_same_requests_and_another_one_others(tmp_path, name):
    text = (DATA / name).read_text()
    again = made(tmp_path, text)
    other = made(tmp_path, text.replace("seed: ", "seed: 9"))

    assert again == requests(DATA / name)
    assert [request.t_ns for request in other] != [request.t_ns for request in again]


def test_a_change_of_lengths_leaves_the_arrivals_alone(tmp_path):
    text = (DATA / "synthetic.yaml").read_text()
    longer = made(tmp_path, text.replace("median: 200", "median: 300"))

    assert [r.t_ns for r in longer] == [r.t_ns for r in requests(DATA / "synthetic.yaml")]
    assert [r.input_len for r in longer] != [r.input_len for r in requests(DATA / "synthetic.yaml")]


@pytest.mark.parametrize(
    ("process", "rate", "cv"),
    [
        (Poisson(requests_per_s=5.0), 5, 1.0),
        (Gamma(requests_per_s=5.0, cv=3.0), 5, 3.0),
        (Gamma(requests_per_s=5.0, cv=0.25), 5, 0.25),
        (Constant(requests_per_s=5.0), 5, 0.0),
    ],
)
def test_arrivals_keep_their_rate_and_variation(process, rate, cv):
    between = gaps(first(process, 20_000))

    assert mean(between) == pytest.approx(1 / rate, rel=0.05)
    assert pstdev(between) / mean(between) == pytest.approx(cv, abs=0.1)
    assert min(between) >= 0


def test_bursts_arrive_at_their_rate_and_pause_between():
    between = gaps(first(Bursts(requests_per_s=100.0, burst_s=1.0, pause_s=10.0), 20_000))
    pauses = [gap for gap in between if gap > 0.5]

    assert mean(gap for gap in between if gap <= 0.5) == pytest.approx(0.01, rel=0.05)
    assert mean(pauses) == pytest.approx(10, rel=0.2)
    assert len(pauses) == pytest.approx(200, rel=0.25)


def test_all_at_once_is_all_at_zero():
    assert first(AtOnce(), 3) == [0, 0, 0]


@pytest.mark.parametrize(
    ("lengths", "average", "low", "high"),
    [
        (7, 7, 7, 7),
        (Fixed(value=9), 9, 9, 9),
        (Uniform(min=3, max=5), 4, 3, 5),
        (Empirical(values=[1, 100]), 50.5, 1, 100),
        (Empirical(values=[1, 100], weights=[3.0, 1.0]), 25.75, 1, 100),
        (Empirical(values=[1, 2, 3], weights=[0.0, 1.0, 0.0]), 2, 2, 2),
        (Quantiles(points=[(0.0, 0), (50.0, 100), (100.0, 200)]), 100, 0, 200),
        (Zipf(exponent=1.0, min=1, max=4), (1 + 1 + 1 + 1) / (1 + 1 / 2 + 1 / 3 + 1 / 4), 1, 4),
    ],
)
def test_lengths_have_the_mean_and_the_bounds_they_should(lengths, average, low, high):
    found = draw(lengths)

    assert mean(found) == pytest.approx(average, rel=0.03)
    assert (min(found), max(found)) == (low, high)


def test_a_lognormal_length_has_its_median_and_percentile_and_stays_inside():
    found = sorted(draw(Lognormal(median=200, p95=1500, min=50, max=3000)))

    assert found[len(found) // 2] == pytest.approx(200, rel=0.05)
    assert found[len(found) * 95 // 100] == pytest.approx(1500, rel=0.08)
    assert (found[0], found[-1]) == (50, 3000)


def prefix_of(request: Request) -> BlockIds:
    assert isinstance(request.identity, BlockIds)
    return request.identity


def test_a_shared_prefix_is_shared_to_its_last_token_and_with_its_group_alone():
    found = requests(DATA / "synthetic.yaml")
    sharing = [request for request in found if request.identity is not None]
    one, *others = sharing[:50]
    for other in others:
        common = key_of(one).common(key_of(other), 0, min(one.input_len, other.input_len))
        same = one.identity == other.identity
        assert common == (prefix_of(one).block_size if same else 0)

    assert len(sharing) / len(found) == pytest.approx(0.8, abs=0.06)
    assert len({prefix_of(request).ids for request in sharing}) == 5
    assert all(300 <= prefix_of(request).block_size <= 900 for request in sharing)


def test_popular_groups_are_drawn_more_often():
    sharing = [request for request in requests(DATA / "synthetic.yaml") if request.identity]
    groups = [prefix_of(request).ids for request in sharing]

    assert groups.count((0,)) > 2 * groups.count((4,))


def test_a_turn_of_a_session_repeats_all_that_was_said():
    sessions: dict[str | None, list[Request]] = {}
    for request in requests(DATA / "synthetic_sessions.yaml"):
        sessions.setdefault(request.session, []).append(request)

    assert max(map(len, sessions.values())) > 2
    for turns in sessions.values():
        assert turns[0].delay_ns is None
        for earlier, later in pairwise(turns):
            said = token_ids(earlier).prompt + token_ids(earlier).output
            assert token_ids(later).prompt[: len(said)] == said
            assert later.t_ns == earlier.t_ns
            assert later.delay_ns in {500_000_000, 4_000_000_000}
    unshared = [
        tokens for turns in sessions.values() for tokens in token_ids(turns[0]).prompt[256:]
    ]
    assert len(unshared) == len(set(unshared))


def test_a_session_ends_where_its_context_would_not_fit(tmp_path):
    found = made(tmp_path, PLAIN + "sessions: {turns: 10, max_context: 400}\n")

    assert [request.input_len for request in found[:4]] == [100, 220, 340, 100]


@pytest.mark.parametrize(
    ("change", "where", "problem"),
    [
        (("requests: 50", "requests: 0"), "2:11", "0"),
        (("input: 100", "input: 0"), "4:8", "'input' must be an integer >= 1, got 0"),
        (("input: 100", "input: -3"), "4:8", "-3"),
        (("output: 20", "output: 1e3"), "5:9", "1e3"),
        (("process: constant", "process: konstant"), "3:21", "konstant"),
        (("requests_per_s: 4.0", "rate: 4.0"), "3:31", "rate"),
        (("requests_per_s: 4.0", "requests_per_s: 0.0"), "3:47", "0.0"),
        (
            ("input: 100", "input: {distribution: uniform, min: 9, max: 3}"),
            "4:8",
            "min 9 is above max 3",
        ),
        (
            ("input: 100", "input: {distribution: lognormal, median: 9, p95: 3}"),
            "4:8",
            "p95 3 lies below",
        ),
        (
            ("input: 100", "input: {distribution: quantiles, points: [[0, 1], [90, 2]]}"),
            "4:8",
            "from 0 to 100",
        ),
        (
            ("input: 100", "input: {distribution: empirical, values: [1], weights: [1.0, 2.0]}"),
            "4:8",
            "2 weights",
        ),
        (
            ("input: 100", "input: {distribution: zipf, exponent: 1.0, max: 9000000}"),
            "4:8",
            "1,000,000",
        ),
        (("seed: 1", "seed: 1\nseed: 2"), "2:1", "given twice"),
        (("output: 20", "output: 20\nsessoins: {turns: 2}"), "6:1", "sessoins"),
        (("requests_per_s: 4.0", "requests_per_s: 0.000001"), "", "more than 146 years"),
    ],
)
def test_a_mistake_is_refused_with_its_place(tmp_path, change, where, problem):
    text = PLAIN.replace(*change)
    if "146" in problem:
        text = text.replace("requests: 50", "requests: 9000")

    with pytest.raises(InputError) as caught:
        made(tmp_path, text)

    assert f"made.yaml:{where}" in str(caught.value)
    assert problem in str(caught.value)


@settings(max_examples=25, deadline=None)
@given(
    requests_asked=st.integers(1, 80),
    turns=st.integers(1, 9),
    groups=st.integers(1, 4),
    share=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_as_many_requests_come_as_were_asked_in_order(
    tmp_path_factory, requests_asked, turns, groups, share
):
    path = tmp_path_factory.mktemp("made") / "made.yaml"
    path.write_text(
        PLAIN.replace("requests: 50", f"requests: {requests_asked}")
        + f"sessions: {{turns: {turns}, think_ms: 10}}\n"
        + f"shared_prefixes: {{groups: {groups}, tokens: 30, share: {share}}}\n"
    )

    workload = opened(path)
    found = list(workload)

    assert len(found) == len(workload) == requests_asked
    assert len({request.rid for request in found}) == requests_asked
    assert [r.t_ns for r in found] == sorted(r.t_ns for r in found)
