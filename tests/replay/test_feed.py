"""Requests come by the clock, follow-ups after the answer that they wait for."""

from __future__ import annotations

from random import Random

import pytest

from kvplan.replay.assumptions import Assumptions
from kvplan.replay.dealt_feed import DealtFeed
from kvplan.replay.feed import Feed
from kvplan.replay.requests import Request


def request(rid, t_ns=0, **change):
    return Request(rid=rid, t_ns=t_ns, input_len=1, output_len=1, **change)


def taken(feed, now_ns):
    """When the requests come that come until now, and which they are."""
    found = []
    while feed.next_ns is not None and feed.next_ns <= now_ns:
        found.append((feed.next_ns, feed.pop().rid))
    return found


def test_requests_come_when_their_time_has_come():
    feed = Feed([request("a", 0), request("b", 5), request("c", 5), request("d", 9)])

    assert feed.next_ns == 0
    assert taken(feed, 6) == [(0, "a"), (5, "b"), (5, "c")]
    assert feed.next_ns == 9
    assert taken(feed, 8) == []
    assert taken(feed, 9) == [(9, "d")]
    assert feed.next_ns is None


def test_a_follow_up_waits_for_its_answer_and_its_delay():
    turns = [request("a1", session="a")] + [
        request(f"a{n}", session="a", delay_ns=10) for n in (2, 3)
    ]
    feed = Feed([*turns, request("b", 50)])

    assert taken(feed, 0) == [(0, "a1")]
    assert feed.next_ns == 50
    feed.answered("a", 20)
    assert taken(feed, 40) == [(30, "a2")]
    feed.answered("a", 45)
    assert taken(feed, 60) == [(50, "b"), (55, "a3")]
    feed.answered("a", 61)
    assert feed.next_ns is None


def test_a_delay_counts_from_an_answer_that_came_before_its_row_was_read():
    feed = Feed(
        [
            request("a1", session="a"),
            request("b", 100),
            request("a2", 100, session="a", delay_ns=60),
            request("c", 120),
            request("a3", 500, session="a", delay_ns=5),
            request("d", 600),
        ]
    )
    assert taken(feed, 0) == [(0, "a1")]
    feed.answered("a", 70)
    assert taken(feed, 110) == [(100, "b")]
    assert taken(feed, 140) == [(120, "c"), (130, "a2")]
    feed.answered("a", 150)
    assert taken(feed, 700) == [(155, "a3"), (600, "d")]


def test_a_delay_without_a_request_before_it_counts_as_an_arrival():
    feed = Feed([request("a", 7, session="a", delay_ns=10)])

    assert feed.next_ns == 7


def test_the_stream_is_read_no_further_than_needed():
    read = []

    def stream():
        for n in range(100):
            read.append(n)
            yield request(str(n), n)

    feed = Feed(stream())
    assert len(taken(feed, 3)) == 4

    assert len(read) == 5


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 7])
@pytest.mark.parametrize("num_turns", [1, 2, 4])
def test_a_rank_gets_its_share_of_every_turn(num_ranks, num_turns):
    """Sessions stand turn by turn in a file, where every second row may be a first turn."""
    numbers, num_sessions, gap_ns = range(num_turns), 4200, 10**9
    begins = sorted(Random(1).sample(range(num_sessions * gap_ns), num_sessions))
    requests = [
        request(f"{turn}", begins[each], session=f"{each}", delay_ns=gap_ns if turn else None)
        for each in range(num_sessions)
        for turn in numbers
    ]
    feed = DealtFeed(requests, num_ranks, Assumptions())
    turns: list[int] = []
    running: list[tuple[int, str | None]] = []
    while True:
        if not running:
            feed.skip_others()
        now_ns = feed.next_ns
        if running and (now_ns is None or running[0][0] <= now_ns):
            answered_ns, session = running.pop(0)
            feed.answered(session, answered_ns)
        elif now_ns is None:
            break
        elif (met := feed.take()) is not None:
            turns.append(int(met.rid))
            running.append((now_ns + gap_ns // 3, met.session))

    assert len(turns) == -(-num_sessions * num_turns // num_ranks)
    for turn in numbers:
        assert turns.count(turn) == pytest.approx(num_sessions / num_ranks, rel=0.15)


def test_a_rank_of_several_keeps_the_times_of_its_requests():
    feed = DealtFeed([request(f"{n}", 10 * n) for n in range(7)], 3, Assumptions())
    found = []
    while (now_ns := feed.next_ns) is not None:
        met = feed.take()
        found += [] if met is None else [(now_ns, met.rid)]

    assert found == [(0, "0"), (30, "3"), (60, "6")]
