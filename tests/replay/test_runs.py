"""Tokens in runs are told apart exactly as the same tokens one by one."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.replay.counted import count_memory
from kvplan.replay.keys import TokenKey, key_of
from kvplan.replay.prefix_cache import PrefixCache
from kvplan.replay.runs import RunKey, Said
from tests.replay.test_replay import figures, server
from tests.replay.workloads.helpers import DATA, opened, requests, token_ids

PAGES = st.sampled_from([1, 2, 3, 4, 64])
# few ids, so that runs go on where the one before ended, overlap, and part in their middle
RUNS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from([0, 1, 2, 3, 70])), max_size=6)


def key_of_runs(runs):
    """A key of a conversation that goes on: what it says later is no part of it."""
    said = Said(1)
    for first, length in runs:
        said.add(first, length)
    key = RunKey(said.tokens())
    said.add(*(sum(runs[-1]), 3) if runs else (0, 3))  # goes on where the last run ended
    said.add_own(70)
    return key


def one_by_one(runs):
    return [first + offset for first, length in runs for offset in range(length)]


@given(st.lists(st.tuples(RUNS, st.integers(0, 80)), min_size=1, max_size=10), PAGES)
def test_runs_match_and_stay_cached_as_their_tokens_do(prompts, page_size):
    by_run = PrefixCache(page_size, lambda _: None)
    by_token = PrefixCache(page_size, lambda _: None)
    for runs, evicted in prompts:
        run_key, token_key = key_of_runs(runs), TokenKey(one_by_one(runs))
        length = run_key.length + 5  # some tokens that are not known

        assert by_run.match(run_key, length).prefix_len == (
            by_token.match(token_key, length).prefix_len
        )
        by_run.insert(run_key, range(length))
        by_token.insert(token_key, range(length))
        assert by_run.evict(evicted) == by_token.evict(evicted)
        assert by_run.evictable == by_token.evictable


@given(RUNS, RUNS, st.integers(0, 90), st.integers(0, 90))
def test_runs_part_where_their_tokens_do(mine, theirs, start, length):
    runs, tokens = key_of_runs(mine), TokenKey(one_by_one(mine))
    ours = one_by_one(mine)
    start = next(
        (
            at
            for at, pair in enumerate(zip(ours, one_by_one(theirs), strict=False))
            if len(set(pair)) > 1
        ),
        start,
    )
    stop = start + length

    assert len(set(runs.stops)) == len(runs.stops)
    assert runs.known(start, stop) == tokens.known(start, stop)
    assert runs.common(key_of_runs(theirs), start, stop) == (
        tokens.common(TokenKey(one_by_one(theirs)), start, stop)
    )
    assert runs.common(tokens, start, stop) == start


@pytest.mark.parametrize("page_size", [1, 4, 64])
@pytest.mark.parametrize("name", ["mooncake_turns.jsonl", "synthetic_sessions.yaml"])
def test_a_replay_of_conversations_is_that_of_their_tokens(name, page_size):
    room = server(page_size=page_size, num_tokens=64 * 90, context_len=3000, num_rows=64)
    by_run = requests(DATA / name)
    by_token = [msgspec.structs.replace(each, identity=token_ids(each)) for each in by_run]

    found = figures(room, by_run, count_memory(room), jumps=True)

    assert found == figures(room, by_token, count_memory(room), jumps=True)
    assert found["hit_tokens"] > 0


def test_a_turn_takes_memory_by_its_runs_and_not_by_its_tokens(tmp_path):
    path = tmp_path / "w.jsonl"
    ids = [*range(200)]
    row = f'{{"session_id": %d, "timestamp": %d, "input_length": 1000000, "output_length": 9, "hash_ids": {ids}}}\n'
    path.write_text("".join(row % (number % 10, number) for number in range(100)))

    tracemalloc.start()
    found = [key_of(request) for request in opened(path)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert max(key.length for key in found if isinstance(key, RunKey)) == 10 * 1_000_009
    assert peak < 4 << 20
