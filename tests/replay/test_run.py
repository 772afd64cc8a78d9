"""A plan and a workload: figures, shortages, partial results."""

from __future__ import annotations

import time
from random import Random

import pytest

from kvplan.errors import InputError
from kvplan.replay.assumptions import Assumptions
from kvplan.replay.conditions import Condition, asked_conditions, read_conditions
from kvplan.replay.counted import count_memory
from kvplan.replay.meter import LONGEST_NS
from kvplan.replay.replay import Replay
from kvplan.replay.requests import Request
from kvplan.replay.run import ReplayOptions, drive, replay
from kvplan.replay.settings import Choices, server_of
from kvplan.replay.timeline import MAX_POINTS
from tests.replay.plans import SECOND, burst, small_plan


def test_a_workload_that_fits_says_how_full_the_pools_were():
    result = replay(small_plan(), burst(10, 100, 20, SECOND))

    assert result.fits
    assert result.complete
    assert result.num_finished == 10
    pools = {pool.name: pool for pool in result.pools}
    assert pools["KV"].capacity == 8192
    assert 119 <= pools["KV"].peak <= 121
    assert result.peak_occupancy == pools["KV"].peak / 8192
    assert pools["request rows"].peak == 1


def test_percentiles_rise_to_the_peak():
    result = replay(small_plan(), burst(60, 700, 100, SECOND // 10))

    for pool in result.pools:
        assert pool.p50 <= pool.p95 <= pool.p99 <= pool.peak <= pool.capacity
        assert 0 <= pool.peak_step < result.num_steps
    waited = result.wait_ns
    assert 0 < waited.p50 <= waited.p95 <= waited.p99 <= waited.max


def test_a_pool_below_the_peak_shows_retractions():
    """Admission that reserves little for answers runs out of room in decode."""
    requests = burst(16, 100, 400)
    bold = ReplayOptions(choices=Choices(conservativeness=0.05))
    roomy = replay(small_plan(), requests, bold)
    tight = replay(small_plan(max_total_tokens=4096), requests, bold)

    assert roomy.fits
    assert roomy.pools[0].peak > 4096
    assert tight.num_retractions > 0
    assert not tight.fits
    assert tight.num_finished == 16


def test_a_prompt_that_never_fits_is_rejected_with_its_reason():
    result = replay(small_plan(context_length=32768), burst(2, 9000, 1))

    assert result.num_rejected == 2
    assert result.rejections == {"the input reaches the limit of 8,186 tokens (KV pool)": 2}
    assert not result.fits


def test_a_limit_cuts_the_workload():
    assert replay(small_plan(), burst(10, 10, 5), ReplayOptions(limit=3)).num_requests == 3


def test_one_data_parallel_rank_gets_every_nth_request():
    plan = small_plan("deepseek-v3", "b200", tp_size=8, dp_size=4, enable_dp_attention=True)

    assert replay(plan, burst(10, 10, 5)).num_requests == 3


@pytest.mark.parametrize("seed", range(12))
def test_ranks_of_conversations_agree_jumping_and_stepping(seed):
    draw = Random(seed)
    plan = small_plan(max_total_tokens=draw.choice([1024, 4096, 8192]))
    server, requests, time_ns = server_of(plan), [], 0
    for session in range(15):
        time_ns += draw.randrange(2 * SECOND)
        requests += [
            Request(
                rid=f"{session}.{turn}",
                t_ns=time_ns,
                input_len=draw.randint(1, 300),
                output_len=draw.randint(1, 150),
                session=str(session),
                delay_ns=draw.randrange(3 * SECOND) if turn else None,
            )
            for turn in range(draw.randint(1, 4))
        ]
    ranks = draw.choice([2, 3, 4])
    results = [
        drive(
            Replay(
                server, count_memory(server), requests, Assumptions(), jumps=jumps, dp_ranks=ranks
            )
        )
        for jumps in (True, False)
    ]

    assert results[0].agreed() == results[1].agreed()
    assert results[0].end_ns == results[1].end_ns
    assert results[0].num_requests == -(-len(requests) // ranks)


def test_a_stopped_replay_keeps_what_it_found():
    turns: list[object] = []
    result = replay(small_plan(), burst(50, 100, 50, SECOND), stop=lambda: len(turns) > 20,
                    observers=[Collector(turns)])  # fmt: skip

    assert not result.complete
    assert len(turns) == 21
    assert 0 < result.num_finished < 50


class Collector:
    def __init__(self, turns):
        self.turns = turns

    def attach(self, run, total):
        self.run, self.total = run, total

    def see(self, turn):
        self.turns.append(turn)


def test_the_timeline_stays_bounded_and_keeps_the_peak():
    result = replay(small_plan(), burst(3000, 50, 30, SECOND // 3))

    times = [point.t_ns for point in result.timeline]
    assert 100 < len(times) <= MAX_POINTS
    assert times == sorted(set(times))
    assert max(point.used for point in result.timeline) == result.pools[0].peak


def test_who_waits_longer_than_can_be_counted_is_counted_as_that():
    slow = ReplayOptions(assumptions=Assumptions(decode_ns=10**16))
    result = replay(small_plan(max_running_requests=1), burst(3, 10, 2000), slow)

    assert result.wait_ns.max == LONGEST_NS
    assert result.num_finished == 3


def test_as_many_rows_as_the_peak_are_enough_and_one_fewer_is_not():
    """Also where a request takes its row in the step that ends another."""
    traffic = burst(60, 300, 40, SECOND // 11)
    roomy = replay(small_plan(), traffic)
    (rows,) = (pool for pool in roomy.pools if pool.unit == "rows")
    assert rows.peak < 32

    enough, short = (
        replay(small_plan(max_running_requests=limit), traffic)
        for limit in (rows.peak, rows.peak - 1)
    )
    assert (enough.end_ns, enough.peak_waiting) == (roomy.end_ns, roomy.peak_waiting)
    assert short.end_ns > roomy.end_ns or short.peak_waiting > roomy.peak_waiting


def test_conditions_are_read_and_judged():
    result = replay(small_plan(), burst(10, 100, 20))
    conditions = read_conditions(["retraction,rejection", "occupancy>0.1", "occupancy>99%"])

    assert conditions[2:] == (Condition("occupancy", 0.1), Condition("occupancy", 0.99))
    assert [each.fails(result) for each in conditions] == [False, False, True, False]


def test_what_fails_anyway_stays_unless_it_is_named():
    names = {
        texts: [str(each) for each in asked_conditions(texts)]
        for texts in [(), ("occupancy>0.9",), ("rejection",), ("retraction>3,wait_max>1s",)]
    }
    assert names == {
        (): ["retraction", "rejection"],
        ("occupancy>0.9",): ["retraction", "rejection", "occupancy>0.9"],
        ("rejection",): ["rejection"],
        ("retraction>3,wait_max>1s",): ["retraction>3", "wait_max>1"],
    }


def test_waiting_longer_than_asked_is_a_condition():
    result = replay(small_plan(max_running_requests=1), burst(4, 100, 20))
    assert result.wait_ns.max > SECOND

    conditions = read_conditions(["wait_max>1", "wait_max>900ms", "wait_max > 100s", "wait_p50>0"])
    assert [each.fails(result) for each in conditions] == [True, True, False, True]
    assert str(conditions[1]) == "wait_max>0.9"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("retractions", "did you mean 'retraction'?"),
        ("occupancy", "for example occupancy>0.95"),
        ("occupancy>7", "for example occupancy>0.95"),
        ("occupancy>0.5s", "for example occupancy>0.95"),
        ("rejection>3s", "for example rejection>3"),
        ("wait_p99", "for example wait_p99>2s"),
        ("wait_p99>5%", "for example wait_p99>2s"),
        ("wait_p99>1m", "for example wait_p99>2s"),
        ("rejection<3", "for example rejection>3"),
        ("wait_p90>2", "did you mean 'wait_p99'?"),
    ],
)
def test_an_unknown_condition_is_refused_with_what_is_meant(text, hint):
    with pytest.raises(InputError) as caught:
        read_conditions([text])

    assert caught.value.hint == hint


def test_requests_that_end_together_cost_no_more_each():
    """A limit of processor time against a cost that grows with the square of the batch."""
    wide = small_plan(
        gpu="b200", max_total_tokens=2_000_000, max_running_requests=20_000,
        chunked_prefill_size=32_768, max_prefill_tokens=32_768,
    )  # fmt: skip
    started = time.process_time()
    result = replay(wide, burst(20_000, 1, 30))

    assert result.num_finished == 20_000
    assert time.process_time() - started < 2
