"""Plans as the scheduler sees them."""

from __future__ import annotations

import pytest

from kvplan.errors import InputError
from kvplan.replay.server import SlidingPool
from kvplan.replay.settings import Choices, read_choices, server_of
from tests.replay.plans import small_plan


def test_a_plan_gives_the_scheduler_its_capacities():
    plan = small_plan(page_size=16, chunked_prefill_size=2048, disable_radix_cache=True)
    server = server_of(plan, Choices(schedule_policy="lpm", conservativeness=0.5))

    assert (server.page_size, server.num_tokens, server.num_rows) == (16, 8192, 32)
    assert (server.context_len, server.chunked_prefill_size) == (4096, 2048)
    assert server.overlap
    assert not server.prefix_cache
    assert (server.schedule_policy, server.conservativeness) == ("lpm", 0.5)


def test_a_launch_switches_chunks_and_overlap_off():
    server = server_of(small_plan(chunked_prefill_size=-1, disable_overlap_schedule=True))

    assert server.chunked_prefill_size is None
    assert not server.overlap


def test_two_pools_give_a_sliding_side():
    plan = small_plan("gpt-oss-20b")
    sides = plan.stages[0].pool.sliding
    assert sides is not None

    assert server_of(plan).sliding == SlidingPool(window=127, num_tokens=sides.sliding_tokens)


def test_a_page_spans_all_decode_context_ranks():
    plan = small_plan("deepseek-v3", "b200", tp_size=8, dcp_size=4, page_size=64)
    server = server_of(plan)

    assert server.page_size == 64 * 4
    assert server.num_tokens == plan.tokens * 4


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (("fifo", 1.0, "lru"), "does not model the schedule policy 'fifo'"),
        (("fcfs", -1.0, "lru"), "a schedule conservativeness of -1"),
        (("fcfs", float("nan"), "lru"), "a schedule conservativeness of nan"),
        (("fcfs", 1.0, "least"), "does not model the eviction policy 'least'"),
    ],
)
def test_choices_that_no_engine_has_are_refused(given, problem):
    with pytest.raises(InputError, match=problem):
        read_choices(*given)
