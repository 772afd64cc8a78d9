"""The scheduling model follows the engine's own scheduler step by step."""

from __future__ import annotations

import copy

import pytest
import torch

from kvplan.pools.storage import open_storage
from kvplan.replay.conformance import schedule_differences
from kvplan.replay.counted import count_memory
from kvplan.replay.memory import KvMemory
from kvplan.replay.pools.build import build_memory
from kvplan.replay.server import Server
from tests.replay.golden import records


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Tensors here are small: more threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pooled(server: Server) -> KvMemory:
    return build_memory(server, open_storage("cpu"))


@pytest.mark.parametrize(
    ("file", "num_runs"), [("schedule.jsonl.gz", 200), ("schedule-sliding.jsonl.gz", 70)]
)
@pytest.mark.parametrize("memory_of", [count_memory, pooled])
def test_every_recorded_schedule_is_followed(shared, file, num_runs, memory_of):
    runs = list(records(shared / "golden" / file))

    assert len(runs) == num_runs
    assert {
        run["seed"]: found for run in runs if (found := schedule_differences(run, memory_of))
    } == {}


def test_slots_are_compared(shared):
    run = copy.deepcopy(next(records(shared / "golden" / "schedule.jsonl.gz")))
    run["steps"][0]["out_cache_loc_checksum"] = "0"

    assert "step 0 out_cache_loc_checksum" in schedule_differences(run, pooled)[0]


def test_a_changed_step_is_a_difference(shared):
    run = copy.deepcopy(next(records(shared / "golden" / "schedule.jsonl.gz")))
    run["steps"][1]["after"]["available"] += 1

    assert "step 1 after" in schedule_differences(run, count_memory)[0]
