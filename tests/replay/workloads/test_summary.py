"""Figures of a workload: counted as they are defined."""

from __future__ import annotations

from math import ceil

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.replay.workloads.summary import Lengths, Watch, summarize
from tests.replay.workloads.helpers import DATA, opened


def nearest_rank(values: list[int], percent: int) -> int:
    return sorted(values)[ceil(percent * len(values) / 100) - 1]


@given(st.lists(st.integers(0, (1 << 18) - 1), min_size=1))
def test_percentiles_are_nearest_ranks(values):
    lengths = Lengths()
    for value in values:
        lengths.note(value)
    found = lengths.summary()

    assert (found.p50, found.p95, found.p99) == tuple(
        nearest_rank(values, percent) for percent in (50, 95, 99)
    )
    assert (found.total, found.max) == (sum(values), max(values))
    assert found.mean == pytest.approx(sum(values) / len(values))


@given(st.lists(st.integers(1 << 18, (1 << 31) - 1), min_size=1))
def test_percentiles_of_very_long_requests_are_within_a_thousandth(values):
    lengths = Lengths()
    for value in values:
        lengths.note(value)

    assert lengths.summary().p95 == pytest.approx(nearest_rank(values, 95), rel=1e-3)
    assert lengths.summary().max == max(values)


def test_lengths_take_bounded_memory():
    lengths = Lengths()
    for value in range(1 << 18, 1 << 24, 61):
        lengths.note(value)

    assert len(lengths.counts) <= 6 << 12


def test_a_summary_counts_rows_pace_and_lengths():
    found = msgspec.structs.asdict(summarize(opened(DATA / "burstgpt_6.csv")))

    for side in ("input", "output"):
        found[side] = msgspec.structs.asdict(found[side])

    assert found.pop("detected").startswith("burstgpt (BurstGPT): 6 columns; ")
    assert found == {
        "read": 4,
        "kept": 3,
        "dropped": {"input of 0 tokens": 1},
        "flagged": {"no answer: prefill only": 1},
        "notes": (),
        "inversions": 0,
        "span_s": 113.0,
        "mean_rps": 3 / 113,
        "peak_rps": 1,
        "input": {
            "count": 3,
            "mean": 1976 / 3,
            "p50": 472,
            "p95": 1087,
            "p99": 1087,
            "max": 1087,
            "total": 1976,
        },
        "output": {
            "count": 3,
            "mean": 248 / 3,
            "p50": 18,
            "p95": 230,
            "p99": 230,
            "max": 230,
            "total": 248,
        },
        "max_total": 1317,
        "with_max_new": 0,
    }


def test_requests_can_be_counted_on_their_way_to_a_replay():
    workload = opened(DATA / "azure_2023.csv")
    watch = Watch()

    assert list(watch.watched(iter(workload))) == list(workload)
    assert watch.summary(workload) == summarize(workload)
