"""kvplan's allocators answer as the engine's recorded ones: slots, order, refusals, free lists."""

from __future__ import annotations

import copy
from collections import Counter

import pytest
import torch

from kvplan.conformance_allocators import checksum, replay_trace
from kvplan.errors import InputError
from tests.allocators.golden import load_traces

KINDS = {
    "token": 29,
    "paged": 98,
    "swa": 33,
    "swa_extra": 30,
    "rows": 30,
    "slots": 30,
    "interleave": 30,
    "hisparse": 30,
}


@pytest.fixture(scope="module")
def traces(shared):
    return load_traces(shared)


def test_the_records_are_all_there(traces):
    assert Counter(trace["allocator"] for trace in traces) == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_every_recorded_trace_is_followed(traces, kind):
    differences = {
        trace["seed"]: found
        for trace in traces
        if trace["allocator"] == kind and (found := replay_trace(trace))
    }

    assert differences == {}


def test_the_checksum_reads_ids_in_order():
    assert checksum([]) == "14650fb0739d0383"
    assert checksum([1, 2]) != checksum([2, 1])
    assert checksum([-1]) == checksum([2**32 - 1])


def changed(trace, index, field, value):
    trace = copy.deepcopy(trace)
    trace["ops"][index][field] = value
    return trace


def test_a_changed_slot_or_count_is_a_difference(traces):
    trace = next(trace for trace in traces if trace["allocator"] == "paged")
    index = next(at for at, op in enumerate(trace["ops"]) if op.get("out"))
    after = trace["ops"][index]["after"]

    assert replay_trace(changed(trace, index, "out", None))[0].startswith(f"op {index} (alloc")
    assert replay_trace(changed(trace, index, "after", after | {"available": -1}))


def test_only_a_leak_behind_a_starved_sliding_side_is_put_back(traces):
    trace = next(
        trace
        for trace in traces
        if trace["allocator"] == "swa" and trace["ops"][-1]["op"] == "free_group_end"
    )
    after = trace["ops"][-1]["after"]
    wrong = after | {"full_available": after["full_available"] + trace["page_size"]}

    assert replay_trace(trace) == []
    assert replay_trace(changed(trace, -1, "after", wrong))


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        ({"allocator": "pagd"}, "unknown allocator 'pagd'"),
        (
            {"allocator": "slots", "size": 1, "page_size": 1, "ops": [{"op": "allok"}]},
            "unknown operation 'allok'",
        ),
    ],
)
def test_an_unknown_kind_or_operation_is_refused_by_name(trace, message):
    with pytest.raises(InputError, match=message):
        replay_trace(trace)


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["reference", "kernel"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_recorded_trace_is_followed_on_a_gpu(traces, kind, backend):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    differences = {
        trace["seed"]: found
        for trace in traces
        if trace["allocator"] == kind
        and (found := replay_trace(trace, backend=backend, device="cuda"))
    }

    assert differences == {}
