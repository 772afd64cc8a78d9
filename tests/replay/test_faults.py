"""Planted faults: each is caught, named, and cut to the shortest prefix that still shows it."""

from __future__ import annotations

import json
import re

import pytest
import torch

from kvplan.allocators.paged import PagedAllocator
from kvplan.allocators.sliding import SlidingAllocator
from kvplan.pools.slot_tensors import reset_parts
from kvplan.replay.pools import assembly, build
from kvplan.replay.pools.doors import KvDoor
from kvplan.replay.pools.watched import Watcher
from kvplan.replay.workloads.events import open_events, write_events
from kvplan.replay.workloads.operations import Extend

SIZES = ("--max-total-tokens", "16384", "--max-running-requests", "24", "--context-length", "8192")
LAUNCH = (
    "trace", "llama-3.1-8b", "--gpu", "h100", "--device", "cpu", "--kv-scale", "--page-size", "16",
    *SIZES,
)  # fmt: skip
SLIDING = ("trace", "gpt-oss-20b", "--gpu", "h100", "--device", "cpu", "--kv-scale", *SIZES)
CHAT = ("--workload", "chat", "--limit", "60", "--verify-every", "20")


class DoubleHandOut(PagedAllocator):
    """The 30th time it hands out pages, one of them is somebody's already."""

    num_takes = 0
    earlier = 0

    def take(self, num_pages):
        pages = super().take(num_pages)
        if num_pages:
            self.num_takes += 1
            if self.num_takes == 30:
                pages = pages.clone()
                pages[0] = self.earlier
            self.earlier = int(pages[-1])
        return pages


class LostPage(PagedAllocator):
    """The 12th free forgets its first page."""

    num_frees = 0

    def put_back(self, pages):
        self.num_frees += 1
        super().put_back(pages[1:] if self.num_frees == 12 else pages)


class PageTwice(PagedAllocator):
    """The 12th free puts its first page into the list twice, and forgets the second."""

    num_frees = 0

    def put_back(self, pages):
        if len(pages) > 1:
            self.num_frees += 1
            if self.num_frees == 12:
                pages = pages.clone()
                pages[1] = pages[0]
        super().put_back(pages)


class SharedWindow(SlidingAllocator):
    """The 20th batch of several new slots has one sliding slot for two of them."""

    num_mapped = 0

    def mapped(self, slots, swa_slots):
        if len(swa_slots) > 1:
            self.num_mapped += 1
            if self.num_mapped == 20:
                swa_slots = swa_slots.clone()
                swa_slots[1] = swa_slots[0]
        return super().mapped(slots, swa_slots)


def traced(kvplan, *argv):
    code, out, err = kvplan(*argv, "--json")
    assert code == 1, out + err
    return json.loads(out)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (DoubleHandOut, r"page \d+ was handed out and is owned by request '\S+'"),
        (LostPage, r"page \d+ is lost: neither free nor owned"),
        (PageTwice, r"page \d+ was handed out and is owned by request '\S+'"),
    ],
)
def test_a_faulty_allocator_is_caught_and_named(kvplan, monkeypatch, fault, text):
    monkeypatch.setattr(build, "PagedAllocator", fault)
    report = traced(kvplan, *LAUNCH, *CHAT)

    found = report["violation"]
    assert re.fullmatch(text, found["text"])
    assert found["check"] == "no slot owned twice, none lost"
    assert found["step"] > 0
    assert found["request"] is not None
    assert found["slot"] % 16 == 0
    assert report["verdict"]["text"].startswith(f"broken: {found['check']}: step {found['step']}")
    assert not report["verdict"]["fits"]


def test_a_sliding_slot_for_two_tokens_is_caught(kvplan, monkeypatch):
    monkeypatch.setattr(build, "SlidingAllocator", SharedWindow)
    found = traced(kvplan, *SLIDING, *CHAT)["violation"]

    assert re.fullmatch(r"sliding page \d+ is mapped to page \d+ and taken already", found["text"])


@pytest.mark.parametrize("fault", [DoubleHandOut, LostPage])
def test_the_shortest_failing_prefix_is_found_and_replays(kvplan, monkeypatch, tmp_path, fault):
    monkeypatch.setattr(build, "PagedAllocator", fault)
    file, shorter = tmp_path / "failing.jsonl", tmp_path / "shorter.jsonl"
    report = traced(kvplan, *LAUNCH, *CHAT, "--shrink", "--record", file)
    operations = list(open_events(file))
    assert report["violation"]["shortest_failing_operations"] == len(operations)

    again = traced(kvplan, *LAUNCH, "--workload", file)["violation"]
    assert again["text"] == report["violation"]["text"]
    assert again["step"] <= report["violation"]["step"]

    write_events(shorter, operations[:-1], page_size=16)
    assert kvplan(*LAUNCH, "--workload", shorter, "-q")[0] == 0


def test_a_recorded_prefix_passes_once_the_fault_is_mended(kvplan, monkeypatch, tmp_path):
    file = tmp_path / "failing.jsonl"
    with monkeypatch.context() as planted:
        planted.setattr(build, "PagedAllocator", DoubleHandOut)
        traced(kvplan, *LAUNCH, *CHAT, "--record", file)

    assert kvplan(*LAUNCH, "--workload", file, "-q")[0] == 0


HYBRID = (
    "trace", "qwen3-next-80b-a3b", "--gpu", "h200", "--tp", "2", "--device", "cpu", "--kv-scale",
    "--max-total-tokens", "16384", "--max-running-requests", "8", "--context-length", "8192",
    "--max-mamba-cache-size", "48",
)  # fmt: skip


@pytest.fixture
def stale_states(monkeypatch):
    """From the 20th time on, a slot of recurrent state keeps its short convolution's windows."""
    times = 0

    def forgetful(parts, slots):
        nonlocal times
        times += 1
        reset_parts(parts[1:] if times > 20 else parts, slots)

    monkeypatch.setattr("kvplan.pools.recurrent.reset_parts", forgetful)


@pytest.mark.usefixtures("stale_states")
def test_a_stale_state_slot_is_caught(kvplan, tmp_path):
    file = tmp_path / "failing.jsonl"
    report = traced(kvplan, *HYBRID, *CHAT, "--shrink", "--record", file)

    found = report["violation"]
    assert re.fullmatch(r"state slot \d+ still has a stale conv", found["text"])
    assert found["request"] is not None
    assert 0 < found["slot"] <= 48
    assert report["violation"]["shortest_failing_operations"] == len(list(open_events(file)))


@pytest.fixture
def slot_that_stays_dirty(monkeypatch):
    """Slot 12 of recurrent state is never blanked."""

    def forgetful(parts, slots):
        reset_parts(parts, slots[slots != 12])

    monkeypatch.setattr("kvplan.pools.recurrent.reset_parts", forgetful)


@pytest.mark.usefixtures("slot_that_stays_dirty")
def test_a_shrunk_prefix_fails_on_pools_that_nothing_else_was_played_on(kvplan, tmp_path):
    whole, short, shorter = (tmp_path / f"{name}.jsonl" for name in ("whole", "short", "shorter"))
    traced(kvplan, *HYBRID, *CHAT, "--record", whole)
    found = traced(kvplan, *HYBRID, "--workload", whole, "--shrink", "--record", short)
    operations = list(open_events(short))
    assert len(operations) == found["violation"]["shortest_failing_operations"]

    again = traced(kvplan, *HYBRID, "--workload", short)["violation"]
    assert again["slot"] == 12
    assert again["request"] == found["violation"]["request"] is not None
    write_events(shorter, operations[:-1])
    assert kvplan(*HYBRID, "--workload", shorter, "-q")[0] == 0


class Vandal(Watcher):
    """Flips one byte of the KV of the 40th new slot or later, the next time something grows."""

    def __init__(self, buffer):
        self.buffer = buffer.view(torch.uint8).reshape(len(buffer), -1)
        self.num_grown = 0
        self.translate = lambda slots: slots

    def grown(self, growth):
        self.num_grown += 1
        if self.num_grown == 40:
            self.buffer[int(self.translate(growth.device_slots)[0]), 3] ^= 1


@pytest.mark.parametrize("launch", [LAUNCH, SLIDING])
def test_one_foreign_byte_fails_the_replay(kvplan, monkeypatch, launch):
    honest = assembly.assemble

    def vandalised(server, pools, *rest):
        made = honest(server, pools, *rest)
        layer = pools.kv.layer_ids[0]
        pool = pools.kv.part(layer) if hasattr(pools.kv, "part") else pools.kv
        buffer = pool.get_key(layer)
        vandal = Vandal(buffer)
        translate = getattr(pools.kv, "translate", None)
        if translate is not None and pools.kv.layers[layer][1]:
            vandal.translate = translate
        made.memory.watchers.append(vandal)
        return made

    monkeypatch.setattr("kvplan.replay.pools.run.assemble", vandalised)
    found = traced(kvplan, *launch, *CHAT, "--stamp")["violation"]

    assert found["check"] == "every token reads back as it was written"
    assert re.fullmatch(
        r"position \d+ does not read back what was written for it \(layer \d+\)", found["text"]
    )
    assert found["request"] is not None
    assert found["slot"] > 0


def corrupted(monkeypatch):
    """A write door that garbles the stamp of slot 5000 whenever it is written there."""
    honest = KvDoor.write

    def write(self, slots, identities, positions):
        honest(self, slots, identities + (slots == 5000), positions)

    monkeypatch.setattr(KvDoor, "write", write)


@pytest.mark.parametrize("launch", [LAUNCH, SLIDING])
def test_a_foreign_byte_is_cut_to_the_write_that_left_it(kvplan, monkeypatch, tmp_path, launch):
    corrupted(monkeypatch)
    file, shorter = tmp_path / "failing.jsonl", tmp_path / "shorter.jsonl"
    report = traced(kvplan, *launch, *CHAT, "--stamp", "--shrink", "--record", file)
    operations = list(open_events(file))

    assert report["violation"]["check"] == "every token reads back as it was written"
    assert report["violation"]["shortest_failing_operations"] == len(operations)
    assert isinstance(operations[-1], Extend)
    again = traced(kvplan, *launch, "--workload", file, "--stamp")["violation"]
    assert again["check"] == report["violation"]["check"]
    assert again["slot"] == report["violation"]["slot"] == 5000

    write_events(shorter, operations[:-1])
    code, out, _ = kvplan(*launch, "--workload", shorter, "--stamp", "--json")
    checks = {each["name"]: each for each in json.loads(out)["verification"]}
    assert code == 0
    assert re.fullmatch(
        r"\S+ tokens stamped, [1-9]\S* read back",
        checks["every token reads back as it was written"]["text"],
    )


def test_a_pool_of_another_size_than_predicted_is_told(kvplan, monkeypatch):
    monkeypatch.setattr(build, "floor_page", lambda tokens, page: tokens // page * page - 4096)
    code, out, _ = kvplan(*LAUNCH, *CHAT, "--json")
    report = json.loads(out)

    (peaks,) = [each for each in report["verification"] if "predicted" in each["name"]]
    assert peaks["state"] == "broken"
    assert re.search(r"\w+: [\d,]+ predicted, [\d,]+ measured", peaks["text"])
    assert code == 1
