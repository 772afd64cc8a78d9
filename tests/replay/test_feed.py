"""Requests come by the clock, follow-ups after the answer that they wait for."""

from __future__ import annotations

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
