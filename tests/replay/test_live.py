"""The live view: two lines that fit any terminal, and a share of what is really replayed."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.commands.trace_live import LiveView
from kvplan.replay.run import ReplayOptions
from kvplan.replay.trace import Arrivals, Session, trace
from kvplan.replay.workloads.named import workload_path
from tests.replay.plans import small_plan


class Page:
    """A display that remembers what it showed."""

    def __init__(self, width):
        self.width = width
        self.shown = []

    def update(self, text):
        self.shown.append(text)


def watched(monkeypatch, width, plan, limit):
    monkeypatch.setattr("kvplan.commands.trace_live.REFRESH_S", 0.0)
    monkeypatch.setattr("kvplan.commands.trace_live.TURNS_A_LOOK", 1)
    page = Page(width)
    launch: Any = None  # only pools ask for it
    session = Session(launch, plan, ReplayOptions(limit=limit), (LiveView(page),))
    trace(session, Arrivals(path=workload_path("documents")))
    return page.shown


@pytest.mark.parametrize("width", [1, 20, 40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(monkeypatch, width):
    for text in watched(monkeypatch, width, small_plan(), 40):
        upper, lower = text.split("\n")

        assert len(upper) <= width
        assert len(lower) <= width
        if width >= 80:
            assert upper.rindex("|") - upper.index("|") == 41
            assert lower.endswith(" evicted")


@pytest.mark.parametrize("server", [{}, {"dp_size": 4, "tp_size": 4, "enable_dp_attention": True}])
@pytest.mark.parametrize("limit", [None, 40])
def test_progress_ends_at_all_requests_that_are_replayed(monkeypatch, server, limit):
    shares = [text[:4].strip() for text in watched(monkeypatch, 80, small_plan(**server), limit)]

    assert shares[0] in ("0%", "1%", "2%", "10%")
    assert shares[-1] == "100%"
    assert [int(share[:-1]) for share in shares] == sorted(int(share[:-1]) for share in shares)
