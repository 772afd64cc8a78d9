"""Counts that jump, counts that step and real slots tell the same of any workload."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.pools.storage import open_storage
from kvplan.replay.assumptions import Assumptions
from kvplan.replay.counted import count_memory
from kvplan.replay.gauges import Gauges
from kvplan.replay.pools.build import build_memory
from kvplan.replay.replay import Replay
from kvplan.replay.requests import BlockIds, Request, TokenIds
from kvplan.replay.server import Server, SlidingPool, Speculation, StatePool
from kvplan.replay.state_store import StateStore

STEP_NS = 20_000_000


def server(**change):
    settings = {
        "page_size": 4,
        "num_tokens": 400,
        "num_rows": 16,
        "row_width": 600,
        "max_running_requests": 16,
        "context_len": 300,
        "chunked_prefill_size": 64,
    }
    return Server(**{**settings, **change})


def request(number, t_steps, input_len, output_len, *, blocks=0, max_new=None):
    identity = BlockIds(ids=tuple(range(blocks)), block_size=16) if blocks else None
    return Request(
        rid=f"r{number}",
        t_ns=t_steps * STEP_NS // 2,
        input_len=max(input_len, 16 * blocks),
        output_len=output_len,
        max_new=max_new,
        identity=identity,
    )


def figures(server, requests, memory, *, jumps, **assumed):
    replay = Replay(
        server, memory, requests, Assumptions(decode_ns=STEP_NS, **assumed), jumps=jumps
    )
    gauges = Gauges(replay)
    for turn in replay:
        gauges.see(turn)
    store = replay.store
    meter = {name: value for name, value in vars(replay.meter).items() if name[0] != "_"}
    assert replay.scheduler.is_idle()
    assert store.reachable() == meter["capacity"]
    assert store.cache.protected == 0
    assert memory.free_rows == server.num_rows
    if isinstance(store, StateStore):
        assert store.reachable_states() == store.pool.num_slots
    peaks = {use.name: use.peak for use in gauges.uses()}
    return {**meter, **peaks, "evicted": store.cache.evicted, "now_ns": replay.now_ns}


def all_figures(server, requests, **assumed):
    memory = build_memory(server, open_storage("cpu"))
    pooled = figures(server, requests, memory, jumps=False, **assumed)
    assert memory.allocator.verify_accounting() == []
    assert memory.rows.verify_accounting() == []
    return {
        "jumping": figures(server, requests, count_memory(server), jumps=True, **assumed),
        "stepping": figures(server, requests, count_memory(server), jumps=False, **assumed),
        "pooled": pooled,
    }


KINDS = st.sampled_from(  # mixed chunks and speculation exclude each other
    [
        {},
        {"mixed_chunk": True},
        {"speculation": Speculation(alloc_len=4, accept_len=1.0)},
        {"speculation": Speculation(alloc_len=4, accept_len=2.7)},
        {"speculation": Speculation(alloc_len=7, accept_len=7.0)},
    ]
)


def server_of_kind(kind, beside, **change):
    return server(**kind, **beside, **change)


@st.composite
def identities(draw, input_len, output_len):
    """What a trace may say of a request's tokens: nothing, blocks of some size, or all of them."""
    few = st.integers(0, 1)
    kind = draw(st.sampled_from(["own", "blocks", "tokens"]))
    if kind == "blocks":
        size = draw(st.sampled_from([2, 16, 24]))
        ids = draw(st.lists(few, min_size=0, max_size=min(8, -(-input_len // size))))
        return BlockIds(ids=tuple(ids), block_size=size)
    if kind == "tokens":
        # alike but for the places in which they part
        prompt, answer = [0] * input_len, [0] * output_len
        for place in draw(st.lists(st.integers(0, input_len - 1), max_size=2)):
            prompt[place] = 1
        known = draw(st.booleans())
        return TokenIds(prompt=tuple(prompt), output=tuple(answer) if known else ())
    return None


@st.composite
def workloads(draw):
    """Requests in order of arrival, some of them of sessions, some after an answer."""
    arrivals = sorted(draw(st.lists(st.integers(0, 120), min_size=1, max_size=25)))
    requests = []
    for number, t_steps in enumerate(arrivals):
        input_len = draw(st.integers(1, 200) | st.just(500))  # which is beyond the context
        output_len = draw(st.integers(0, 90))
        session = draw(st.sampled_from([None, None, "a", "b"]))
        requests.append(
            Request(
                rid=f"r{number}",
                t_ns=t_steps * STEP_NS // 2,
                input_len=input_len,
                output_len=output_len,
                max_new=draw(st.sampled_from([None, None, 0, 40, 300])),
                identity=draw(identities(input_len, output_len)),
                session=session,
                delay_ns=draw(st.sampled_from([None, 0, STEP_NS])) if session else None,
            )
        )
    return requests


WORKLOADS = workloads()

SERVERS = st.builds(
    server_of_kind,
    KINDS,
    page_size=st.sampled_from([1, 4, 16]),
    num_tokens=st.sampled_from([256, 400, 2000]),
    max_running_requests=st.sampled_from([2, 5, 16]),
    chunked_prefill_size=st.sampled_from([None, 32, 64]),
    prefix_cache=st.booleans(),
    schedule_policy=st.sampled_from(["fcfs", "lpm"]),
    eviction_policy=st.sampled_from(["lru", "mru", "fifo", "filo", "lfu", "slru"]),
    conservativeness=st.sampled_from([0.05, 0.3, 1.0]),
    overlap=st.booleans(),
    beside=st.sampled_from(
        [
            {},
            {"sliding": SlidingPool(window=32, num_tokens=256)},
            {"sliding": SlidingPool(window=64, num_tokens=400)},
            {"sliding": SlidingPool(window=32, num_tokens=96)},  # shorter than a prompt
            {"states": StatePool(num_slots=36)},
            {"states": StatePool(num_slots=80, tracking_slots=2, grid=16, interval=32)},
        ]
    ),
)


@settings(max_examples=60, deadline=None)
@given(WORKLOADS, SERVERS, st.sampled_from(["exact", "context", 64]))
def test_all_engines_agree(requests, server, max_new):
    found = all_figures(server, requests, max_new=max_new)

    assert found["jumping"] == found["stepping"] == found["pooled"]


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("beside", [{}, {"sliding": SlidingPool(window=256, num_tokens=4000)}])
def test_steps_taken_together_count_as_they_would_one_by_one(page_size, beside):
    """Few requests with long answers: nearly all time passes in steps taken together."""
    wide = server(num_tokens=8000, context_len=4000, page_size=page_size, **beside)
    requests = [request(n, 900 * n, 100 + 50 * n, 200 + 30 * n) for n in range(12)]
    jumping, stepping = (uses(wide, requests, jumps=jumps) for jumps in (True, False))

    for jumped, stepped in zip(jumping, stepping, strict=True):
        slack = 2 * page_size + stepped.capacity // 500
        assert jumped.p50 == pytest.approx(stepped.p50, abs=slack)
        assert jumped.p95 == pytest.approx(stepped.p95, abs=slack)
        assert jumped.peak == stepped.peak
        assert jumped.peak_ns == pytest.approx(stepped.peak_ns, abs=page_size * STEP_NS)
        assert jumped.peak_step == pytest.approx(stepped.peak_step, abs=page_size)


def uses(server, requests, *, jumps):
    replay = Replay(
        server, count_memory(server), requests, Assumptions(decode_ns=STEP_NS), jumps=jumps
    )
    gauges = Gauges(replay)
    for turn in replay:
        gauges.see(turn)
    return gauges.uses()


def test_a_follow_up_of_a_refused_request_comes_as_the_loop_meets_it():
    """Also where it comes while a full batch decodes, of which steps are taken together."""
    alone = server(max_running_requests=1, num_tokens=2000)
    requests = [request(0, 0, 1, 120), request(1, 0, 2, 1)]
    for rid, input_len, delay_ns in [("refused", 500, None), ("follow", 2, 0), ("later", 2, None)]:
        late = request(0, 100, input_len, 1)
        late = msgspec.structs.replace(late, rid=rid, session="a", delay_ns=delay_ns)
        requests.append(late)
    found = all_figures(alone, requests)

    assert found["jumping"] == found["stepping"] == found["pooled"]
    waits = found["jumping"]["waits_ns"]
    assert waits[2] > 60 * STEP_NS


def test_everybody_is_answered_and_counted():
    requests = [request(n, n, 50, 20) for n in range(40)] + [request(99, 50, 500, 1)]

    found = all_figures(server(), requests)["jumping"]
    assert found["num_requests"] == 41
    assert found["num_finished"] == 40
    assert sum(found["rejections"].values()) == 1
    assert found["computed_tokens"] == 40 * 50
    assert found["hit_tokens"] == found["num_aborted"] == found["num_retractions"] == 0


def test_two_prompts_are_never_cut_in_one_pass():
    """The sliding side leaves each of them a part; who is cut first goes on first."""
    tight = server(
        num_tokens=2000, chunked_prefill_size=512, sliding=SlidingPool(window=32, num_tokens=120)
    )
    # what the first one's long answer keeps of the sliding side is room for the second's part
    requests = [request(0, 0, 150, 60), request(1, 0, 150, 4), request(2, 0, 150, 4)]
    found = all_figures(tight, requests)

    assert found["jumping"] == found["stepping"] == found["pooled"]
    assert found["jumping"]["num_finished"] + sum(found["jumping"]["rejections"].values()) == 3


def test_shared_blocks_are_hits():
    requests = [request(n, 60 * n, 40, 4, blocks=2) for n in range(5)]

    found = all_figures(server(), requests)["jumping"]
    assert found["hit_tokens"] == 4 * 32


def test_a_pool_that_is_too_small_brings_retractions():
    requests = [request(n, 8 * n, 40, 60) for n in range(10)]

    roomy = all_figures(server(num_tokens=2000), requests)["jumping"]
    assert roomy["num_retractions"] == 0

    tight = server(num_tokens=256, conservativeness=0.05)
    assert tight.num_tokens < roomy["KV"]
    found = all_figures(tight, requests)["jumping"]
    assert found["num_retractions"] > 0
    assert found["first_retraction_ns"] > 0
    assert found["recomputed_tokens"] > 0
    assert found["num_finished"] == 10


def test_a_request_that_no_empty_sliding_pool_holds_does_not_stop_the_rest():
    narrow = server(
        chunked_prefill_size=None, num_tokens=2000, sliding=SlidingPool(window=64, num_tokens=128)
    )
    requests = [request(0, 0, 250, 4), request(1, 1, 20, 4)]

    found = all_figures(narrow, requests)["jumping"]
    assert found["num_finished"] == 1
    assert list(found["rejections"]) == ["never admitted: an empty pool has no room for it"]


@pytest.mark.parametrize("jumps", [True, False])
def test_an_empty_workload_ends_at_once(jumps):
    launch = server()

    found = figures(launch, [], count_memory(launch), jumps=jumps)
    assert found["num_requests"] == found["decode_steps"] == 0
