"""Requirements that only a replay of traffic can answer: retractions, rejections, occupancy."""

from __future__ import annotations

from kvplan.errors import InputError
from kvplan.guard.budget import Entry
from kvplan.guard.requirements import Finding
from kvplan.planner import Launch
from kvplan.sizing.plan import NoStart, Plan


def replay_findings(entry: Entry, launch: Launch, outcome: Plan | NoStart) -> list[Finding]:
    """What the budget's workload does to the plan; empty where it has none."""
    del launch
    if entry.budget.workload is None or isinstance(outcome, NoStart):
        return []
    raise InputError("this version replays no workloads", where=entry.where("workload"))
