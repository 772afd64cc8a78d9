"""Sorting in bounded memory: the same order as sorting everything at once, ties as they came."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.errors import TraceError
from kvplan.replay.requests import BlockIds, TokenIds, TokenRuns
from kvplan.replay.workloads import order
from kvplan.replay.workloads.order import in_order, spilled, survey, windowed
from kvplan.replay.workloads.rows import Row
from tests.replay.workloads.helpers import DATA, opened, requests

nearly_sorted = st.lists(st.integers(0, 30), max_size=300).map(
    lambda jitters: [3 * place + jitter for place, jitter in enumerate(jitters)]
)
times = nearly_sorted | st.lists(st.integers(0, 10**6), max_size=300)


def rows_at(times: list[int]) -> list[Row]:
    return [Row(t_ns, 1, 1, line) for line, t_ns in enumerate(times)]


def sorted_rows(times: list[int]) -> list[Row]:
    return sorted(rows_at(times), key=lambda row: row.t_ns)


@settings(deadline=None)
@given(times, st.sampled_from([1, 4, 256]))
def test_a_survey_bounds_how_far_rows_must_move(times, checkpoint):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "CHECKPOINT_ROWS", checkpoint)
        seen = survey(rows_at(times))
        places = {row.line: place for place, row in enumerate(sorted_rows(times))}

        assert seen.inversions == sum(b < a for a, b in pairwise(times))
        assert all(line - place <= seen.window for line, place in places.items())
        if seen.window:
            assert list(windowed(iter(rows_at(times)), seen.window)) == sorted_rows(times)


@settings(deadline=None, max_examples=50)
@given(times, st.integers(1, 50))
def test_sorting_through_disk_gives_the_same_order(times, max_held):
    assert list(spilled(iter(rows_at(times)), max_held)) == sorted_rows(times)


def test_rows_come_back_from_disk_as_they_were():
    rows = [
        Row(
            3,
            1,
            2,
            1,
            "näme",
            5,
            "s",
            BlockIds(ids=(1, 2**64 - 1), block_size=16, namespace="n"),
            7,
        ),
        Row(2, 1, 2, 2, identity=TokenIds(prompt=(1, -(2**70)), output=(3,))),
        Row(1, 1, 2, 3, identity=TokenRuns(shifts=[2**94, -(2**40)], stops=[1, 3], length=3)),
    ]

    assert list(spilled(iter(rows), 1)) == rows[::-1]


@pytest.mark.parametrize("max_held", [10, 10_000])
def test_the_way_of_sorting_follows_the_memory_allowed(monkeypatch, max_held):
    monkeypatch.setattr(order, "CHECKPOINT_ROWS", 4)
    used: list[str] = []

    def noted(name: str, real):
        def call(*args):
            used.append(name)
            return real(*args)

        return call

    for name in ("windowed", "spilled"):
        monkeypatch.setattr(order, name, noted(name, getattr(order, name)))
    times = [0, 50, *range(1, 49)]

    found = list(in_order(lambda: iter(rows_at(times)), survey(rows_at(times)), max_held))

    assert found == sorted_rows(times)
    assert used == ["spilled" if max_held == 10 else "windowed"]


def test_rows_with_many_ids_count_for_their_memory():
    heavy = Row(1, 8_000, 1, 1, identity=BlockIds(ids=tuple(range(800)), block_size=10))

    assert survey([heavy, Row(0, 1, 1, 2)]).held == 102


def test_a_full_disk_is_an_error_and_not_a_traceback(monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(order, "written", full)

    with pytest.raises(TraceError, match="cannot sort the rows through disk: no space left"):
        list(spilled(iter(rows_at([2, 1])), 1))


def test_rows_out_of_order_are_sorted_and_counted(tmp_path):
    header, *rows = (DATA / "vidur.csv").read_text().splitlines()
    path = tmp_path / "w.csv"
    path.write_text("\n".join([header, *rows[::-1]]))

    workload = opened(path)

    assert workload.inversions == 2
    assert workload.notes == ("rows out of order, sorted by time: 2",)
    assert [(r.t_ns, r.input_len) for r in workload] == [
        (r.t_ns, r.input_len) for r in requests(DATA / "vidur.csv")
    ]


def test_progress_is_heard_now_and_then(monkeypatch):
    monkeypatch.setattr(order, "PROGRESS_ROWS", 512)
    heard: list[int] = []

    survey(rows_at(list(range(1_200))), heard.append)

    assert heard == [512, 1_024]
