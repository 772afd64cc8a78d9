"""The scheduling model follows the engine's own scheduler step by step."""

from __future__ import annotations

import copy

import pytest
import torch

from kvplan.pools.storage import open_storage
from kvplan.replay.conformance import schedule_differences
from kvplan.replay.counted import CountedMemory
from kvplan.replay.memory import KvMemory
from kvplan.replay.pools.memory import build_memory
from kvplan.replay.server import Server
from tests.replay.golden import records


def counted(server: Server) -> KvMemory:
    return CountedMemory(server.num_tokens, server.page_size, server.num_rows)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Tensors here are small: more threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pooled(server: Server) -> KvMemory:
    return build_memory(server, open_storage("cpu"))


def test_every_recorded_schedule_is_followed_by_counts(shared):
    runs = list(records(shared / "golden" / "schedule.jsonl.gz"))

    assert len(runs) == 200
    assert {
        run["seed"]: found for run in runs if (found := schedule_differences(run, counted))
    } == {}


def test_every_recorded_schedule_is_followed_slot_by_slot(shared):
    runs = list(records(shared / "golden" / "schedule.jsonl.gz"))

    assert len(runs) == 200
    assert {
        run["seed"]: found for run in runs if (found := schedule_differences(run, pooled))
    } == {}


def test_slots_are_compared(shared):
    run = copy.deepcopy(next(records(shared / "golden" / "schedule.jsonl.gz")))
    run["steps"][0]["out_cache_loc_checksum"] = "0"

    assert "step 0 out_cache_loc_checksum" in schedule_differences(run, pooled)[0]


def test_a_changed_step_is_a_difference(shared):
    run = copy.deepcopy(next(records(shared / "golden" / "schedule.jsonl.gz")))
    run["steps"][1]["after"]["available"] += 1

    assert "step 1 after" in schedule_differences(run, counted)[0]
