"""The scheduling model follows the engine's own scheduler step by step."""

from __future__ import annotations

import copy

from kvplan.replay.conformance import schedule_differences
from kvplan.replay.counted import CountedMemory
from tests.replay.golden import records


def counted(server):
    return CountedMemory(server.num_tokens, server.page_size, server.num_rows)


def test_every_recorded_schedule_is_followed_by_counts(shared):
    runs = list(records(shared / "golden" / "schedule.jsonl.gz"))

    assert len(runs) == 200
    assert {
        run["seed"]: found for run in runs if (found := schedule_differences(run, counted))
    } == {}


def test_a_changed_step_is_a_difference(shared):
    run = copy.deepcopy(next(records(shared / "golden" / "schedule.jsonl.gz")))
    run["steps"][1]["after"]["available"] += 1

    assert "step 1 after" in schedule_differences(run, counted)[0]
