"""The Triton kernels, interpreted, answer as the engine on a sample of every page size."""

from __future__ import annotations

import os
from itertools import zip_longest
from typing import Any

import pytest

from kvplan.conformance_allocators import replay_trace
from tests.allocators.golden import load_traces

PAGE_SIZES = {"paged": {4, 16, 32, 64, 128}, "swa": {1, 16, 64}, "swa_extra": {4, 16, 64}}
MIN_OPS = 2200

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1",
    reason="interpreted kernels need TRITON_INTERPRET=1 before triton is imported",
)


def sample(traces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Traces of each kind and page size in turn, until there are enough operations."""
    piles: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for trace in traces:
        if trace["allocator"] in PAGE_SIZES:
            piles.setdefault((trace["allocator"], trace["page_size"]), []).append(trace)
    chosen: list[dict[str, Any]] = []
    for round_ in zip_longest(*piles.values()):
        if sum(len(trace["ops"]) for trace in chosen) >= MIN_OPS:
            break
        chosen += [trace for trace in round_ if trace is not None]
    return chosen


def test_a_sample_of_all_page_sizes_is_followed_through_the_kernels(shared):
    chosen = sample(load_traces(shared))

    assert sum(len(trace["ops"]) for trace in chosen) >= MIN_OPS
    for kind, page_sizes in PAGE_SIZES.items():
        assert {t["page_size"] for t in chosen if t["allocator"] == kind} == page_sizes
    assert {
        trace["seed"]: found for trace in chosen if (found := replay_trace(trace, backend="kernel"))
    } == {}
