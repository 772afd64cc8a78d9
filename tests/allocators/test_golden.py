"""kvplan's allocators answer as the engine's recorded ones: slots, order, refusals, free lists."""

from __future__ import annotations

import copy
from collections import Counter

import pytest
import torch

from kvplan import conformance_allocators
from kvplan.allocators import paired
from kvplan.allocators.paged import PagedAllocator
from kvplan.allocators.sliding import SlidingAllocator
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


class LosesAPage(PagedAllocator):
    """Forgets the last page that a group gives back."""

    def free_group_end(self):
        if self.group is not None and self.group.slots:
            pages = self.group.slots[-1]
            self.group.slots[-1] = pages[pages != pages[-1]]
        super().free_group_end()


class LosesASlidingPage(SlidingAllocator):
    """The same on the sliding side."""

    def free_group_end(self):
        if self.swa_group is not None and self.swa_group.slots:
            self.swa_group.slots[-1] = self.swa_group.slots[-1][1:]
        super().free_group_end()


def leaking_traces(traces):
    """Those in which the engine lost full pages of a sliding decode that it refused."""
    found = []
    for trace in traces:
        if trace["allocator"] != "swa" or trace["ops"][-1]["op"] != "free_group_end":
            continue
        pool = SlidingAllocator(trace["size"], trace["size_swa"], trace["page_size"])
        held = set()
        for op in trace["ops"]:
            held |= {slot // pool.page_size for slot in op.get("out") or ()}
            if op["op"] in ("free", "free_segment"):
                held -= {slot // pool.page_size for slot in op["index"]}
        free = trace["size"] - len(held) * pool.page_size
        if free != trace["ops"][-1]["after"]["full_available"]:
            found.append(trace)
    return found


def test_an_operation_that_kvplan_refuses_is_a_difference(traces):
    trace = next(trace for trace in traces if trace["allocator"] == "paged")
    index = next(at for at, op in enumerate(trace["ops"]) if op.get("last_loc"))
    wrong = [2**40] * len(trace["ops"][index]["last_loc"])

    assert replay_trace(changed(trace, index, "last_loc", wrong))[-1].startswith(
        f"op {index} ({trace['ops'][index]['op']}): refused, request 0 of the batch has last_loc"
    )


def test_the_engine_loses_full_pages_of_eight_refused_sliding_decodes(traces):
    leaking = leaking_traces(traces)

    assert len(leaking) == 8
    assert all(replay_trace(trace) == [] for trace in leaking)


def test_what_the_engine_lost_hides_no_page_that_kvplan_loses(traces, monkeypatch):
    leaking = leaking_traces(traces)

    with monkeypatch.context() as planted:
        planted.setattr(paired, "PagedAllocator", LosesAPage)
        assert all(
            any("full side: 1 pages left with a free group" in text for text in replay_trace(trace))
            for trace in leaking
        )
    monkeypatch.setattr(conformance_allocators, "SlidingAllocator", LosesASlidingPage)
    assert all(replay_trace(trace) for trace in leaking)


@pytest.mark.parametrize(
    ("field", "pages"),
    [
        ("full_available", 1),
        ("full_available", -1_000),
        ("swa_available", 1),
        ("swa_available", -1),
        ("available", -1),
    ],
)
def test_only_a_leak_behind_a_starved_sliding_side_is_put_back(traces, field, pages):
    for trace in leaking_traces(traces):
        after = trace["ops"][-1]["after"]
        wrong = after | {field: after[field] + pages * trace["page_size"]}
        if field == "full_available" and pages == 1:
            wrong["full_available"] += trace["page_size"]  # beyond the page that leaked
        assert replay_trace(changed(trace, -1, "after", wrong))


def test_a_leak_within_a_trace_or_beside_free_sliding_pages_is_a_difference(traces):
    for trace in traces:
        if trace["allocator"] != "swa":
            continue
        for index, op in enumerate(trace["ops"]):
            starved = index and trace["ops"][index - 1]["after"]["swa_available"] == 0
            if op["op"] != "free_group_end" or (index == len(trace["ops"]) - 1 and starved):
                continue
            after = op["after"]
            less = after | {"full_available": after["full_available"] - trace["page_size"]}
            assert replay_trace(changed(trace, index, "after", less))
            break


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
