"""After every step each page is free, cached, or held by exactly as many requests as hold it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.replay.assumptions import Assumptions
from kvplan.replay.batch import Decode, Prefill
from kvplan.replay.counted import count_memory
from kvplan.replay.replay import Replay
from kvplan.units import ceil_page, floor_page
from tests.replay.test_replay import SERVERS, WORKLOADS


def live_sequences(replay, step):
    """Whoever holds slots: running requests, those of batches in flight, a cut prompt."""
    found = list(replay.scheduler.running.sequences)
    if isinstance(step.batch, Prefill):
        found += [part.sequence for part in step.batch.parts]
    if isinstance(step.batch, Decode):
        found += step.batch.sequences
    if replay.scheduler.chunked is not None:
        found.append(replay.scheduler.chunked)
    return {sequence for sequence in found if sequence.holds_row}


@settings(max_examples=60, deadline=None)
@given(WORKLOADS, SERVERS, st.sampled_from(["exact", 64]))
def test_nothing_is_lost_after_any_step(requests, server, max_new):
    replay = Replay(
        server, count_memory(server), requests, Assumptions(max_new=max_new), jumps=False
    )
    capacity = floor_page(server.num_tokens, server.page_size)
    for turn in replay:
        live = live_sequences(replay, turn.step)
        private = sum(
            ceil_page(sequence.allocated(), server.page_size) - sequence.protected_len
            for sequence in live
        )
        cache = replay.store.cache
        cached = cache.evictable + cache.protected

        assert private + cached + replay.store.reachable() - cache.evictable == capacity
        assert len(live) + replay.store.memory.free_rows == server.num_rows
        assert all(sequence.allocated() >= sequence.committed() for sequence in live)

    meter = replay.meter
    answered = meter.num_finished + meter.num_aborted + meter.rejections.total()
    assert answered == meter.num_requests == len(requests)
    assert replay.store.memory.free_rows == server.num_rows
