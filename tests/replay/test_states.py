"""Recurrent state: a slot for each request, more for states worth keeping, the rest cached."""

from __future__ import annotations

import pytest

from kvplan.errors import InputError, ReplayViolation
from kvplan.replay.assumptions import Assumptions
from kvplan.replay.counted import count_memory
from kvplan.replay.replay import Replay
from kvplan.replay.server import SlidingPool, StatePool
from tests.replay.test_replay import request, server

TRACKING = StatePool(num_slots=80, tracking_slots=2, grid=16, interval=32)


def run(launch, requests):
    replay = Replay(launch, count_memory(launch), requests, Assumptions(), jumps=True)
    for _ in replay:
        pass
    return replay


def in_turn(*sizes):
    """Requests far enough apart that each finds what the one before left."""
    return [
        request(number, 1000 * number, input_len, output_len, blocks=blocks)
        for number, (input_len, output_len, blocks) in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("sizes", "hits"),
    [
        # the state is kept after 48 of 50 tokens: the blocks of the second prompt end before that
        (((50, 4, 2), (40, 4, 2)), 0),
        # a prompt of exactly two blocks and a few tokens keeps the state at their end
        (((40, 4, 2), (40, 4, 2)), 32),
        # too short a prompt keeps no state: its KV cannot be used again
        (((15, 4, 0), (15, 4, 0)), 0),
        # the first leaves its KV but no state at 32; the second keeps one there; the third hits
        (((60, 4, 2), (61, 4, 2), (62, 4, 2)), 32),
    ],
)
def test_a_prefix_counts_where_its_state_was_kept(sizes, hits):
    assert run(server(states=TRACKING), in_turn(*sizes)).meter.hit_tokens == hits


def test_states_of_the_cache_give_way_to_requests():
    few = StatePool(num_slots=6, tracking_slots=2, grid=16, interval=32)
    launch = server(states=few, max_running_requests=1)

    replay = run(launch, in_turn(*((20 + number, 40, 0) for number in range(12))))
    assert replay.meter.num_finished == 12
    assert replay.store.reachable_states() == 6


def test_too_few_states_for_the_requests_that_may_run_is_a_violation():
    launch = server(states=StatePool(num_slots=4, tracking_slots=2, grid=16, interval=32))

    with pytest.raises(ReplayViolation, match="no state slot is left for request 'r1'"):
        run(launch, [request(0, 0, 20, 50), request(1, 1, 20, 50)])


def test_two_kinds_of_second_pools_are_refused():
    with pytest.raises(InputError, match="beside recurrent states"):
        server(states=TRACKING, sliding=SlidingPool(window=32, num_tokens=256))
