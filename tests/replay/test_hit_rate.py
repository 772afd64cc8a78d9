"""Prefix hits of a real trace, against figures of a public cache simulator."""

from __future__ import annotations

import json

import pytest

from kvplan.replay.hit_rate import hit_rate, hits_block_lru, hits_infinite, hits_tree
from kvplan.replay.requests import BlockIds, Request

CAPACITIES = [1_000, 5_000, 10_000, 20_000, 50_000, 100_000]  # blocks of 512 tokens


@pytest.fixture(scope="module")
def conversations(shared):
    with (shared / "facts" / "traces" / "mooncake_conversation_trace.jsonl").open() as lines:
        return [request_of(number, json.loads(line)) for number, line in enumerate(lines)]


def request_of(number, row):
    return Request(
        rid=str(number),
        t_ns=row["timestamp"] * 1_000_000,
        input_len=row["input_length"],
        output_len=row["output_length"],
        identity=BlockIds(ids=tuple(row["hash_ids"]), block_size=512),
    )


def last_half(hits):
    hits = list(hits)
    return hits[len(hits) // 2 :]


def test_a_cache_without_end_hits_what_its_trace_allows(conversations):
    assert round(hit_rate(hits_infinite(conversations)), 6) == 0.373624


@pytest.mark.parametrize(
    ("hits_of", "rates"),
    [
        (hits_block_lru, [0.0467, 0.1130, 0.2195, 0.3031, 0.3767, 0.3922]),
        (hits_tree, [0.0467, 0.1119, 0.2130, 0.2998, 0.3754, 0.3922]),
    ],
)
def test_least_recent_first_hits_as_known(conversations, hits_of, rates):
    found = [hit_rate(last_half(hits_of(conversations, capacity))) for capacity in CAPACITIES]

    assert [round(rate, 4) for rate in found] == rates


def test_requests_without_blocks_hit_nothing():
    requests = [Request(rid=str(n), t_ns=0, input_len=100, output_len=1) for n in range(3)]

    assert hit_rate(hits_infinite(requests)) == 0.0
    assert hit_rate(hits_tree(requests, 10)) == 0.0
    assert hit_rate([]) == 0.0
