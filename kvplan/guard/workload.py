"""Requirements that only a replay of traffic can answer: retractions, rejections, occupancy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvplan.errors import InputError, KvplanError
from kvplan.guard.budget import Entry, Traffic
from kvplan.guard.plan_file import joined
from kvplan.guard.requirements import Finding, number
from kvplan.replay.assumptions import Assumptions
from kvplan.replay.checks import Broken
from kvplan.replay.measured import Measured, measured
from kvplan.replay.result import ReplayResult
from kvplan.replay.run import Driver, ReplayOptions, over_counts
from kvplan.replay.settings import MODELLED, launch_choices
from kvplan.replay.workloads.named import workload_path
from kvplan.replay.workloads.options import ReadOptions
from kvplan.replay.workloads.workload import open_workload
from kvplan.sizing.plan import Plan
from kvplan.units import NS_PER_MS, NS_PER_S


def replay_findings(entry: Entry, scheduling: Mapping[str, Any], plan: Plan) -> list[Finding]:
    """What the budget's workload does to the plan.

    KvplanError where the workload cannot be read or the plan's pools are not replayed.
    """
    workload = entry.budget.workload
    assert workload is not None
    if plan.max_running_requests < 1:
        raise InputError("this launch runs no request at all", where=entry.where("workload"))
    traffic = Traffic(file=workload) if isinstance(workload, str) else workload
    try:
        return traffic_findings(entry, *replayed(entry, traffic, scheduling, plan))
    except KvplanError as error:
        where = error.where or entry.where("workload", "file")
        raise type(error)(error.problem, where=where, hint=error.hint) from None


def replayed(entry: Entry, traffic: Traffic, scheduling: Mapping[str, Any], plan: Plan) -> Measured:
    """The traffic through the accounting engine on one DP rank of the plan."""
    path = workload_path(traffic_path(entry, traffic.file))
    options = ReadOptions(
        skip_bad_rows=traffic.skip_bad_rows,
        block_size=traffic.block_size,
        prefix_only=traffic.prefix_only,
        time_unit=traffic.time_unit,
        request_rate=traffic.request_rate,
        output_len=traffic.output_len,
        seed=traffic.seed,
    )
    workload = open_workload(path, format=traffic.format, options=options)
    assumptions = Assumptions(
        max_new=traffic.max_new,
        decode_ns=max(1, round(traffic.tpot_ms * NS_PER_MS)),
        prefill_tokens_per_s=traffic.prefill_tokens_per_s,
    )
    choices = launch_choices({**scheduling, **own_scheduling(traffic)}, traffic.accept_len)
    replay = ReplayOptions(assumptions=assumptions, choices=choices, limit=traffic.requests)
    return measured(Driver(over_counts(plan, workload, replay)))


def own_scheduling(traffic: Traffic) -> dict[str, Any]:
    """The scheduler's settings that the traffic names itself, by field of the server arguments."""
    named = {field: getattr(traffic, field, None) for field in MODELLED}
    return {field: value for field, value in named.items() if value is not None}


def traffic_path(entry: Entry, name: str) -> str:
    """A path from the budget's folder; shipped workloads go by a bare name."""
    is_path = Path(name).suffix or "/" in name
    return joined(Path(entry.document.file).parent, name) if is_path else name


def traffic_findings(entry: Entry, result: ReplayResult, broken: Broken | None) -> list[Finding]:
    """The replay's figures against what is required of them; none holds where it had to stop."""
    require = entry.budget.require
    if broken is not None:
        text = f"the engine would stop at {broken.at(result.num_steps).sentence()}"
        return [
            traffic_finding(entry, name, text, 1, 0)
            for name in ("no_retractions", "no_rejections", "max_occupancy")
            if getattr(require, name)
        ]
    found = []
    if require.no_retractions:
        text = counted(result.num_retractions, "retraction", result.num_requests)
        text += since(result.first_retraction_ns)
        found.append(traffic_finding(entry, "no_retractions", text, result.num_retractions, 0))
    if require.no_rejections:
        text = counted(result.num_rejected, "rejection", result.num_requests)
        text += "".join(f", {reason}" for reason in sorted(result.rejections))
        found.append(traffic_finding(entry, "no_rejections", text, result.num_rejected, 0))
    if require.max_occupancy is not None:
        fullest, need = result.fullest, require.max_occupancy
        text = f"occupancy of {fullest.name}: {number(100 * fullest.share)}%"
        text += f", at most {number(100 * need)}% allowed"
        found.append(traffic_finding(entry, "max_occupancy", text, fullest.share, need))
    return found


def counted(events: int, what: str, requests: int) -> str:
    """`38 retractions in 1,000 requests`."""
    plural = "" if events == 1 else "s"
    return f"{events or 'no'} {what}{plural} in {requests:,} requests"


def since(first_ns: int | None) -> str:
    """When in the replay the first one came."""
    if first_ns is None:
        return ""
    minutes, seconds = divmod(first_ns // NS_PER_S, 60)
    return f", the first at {minutes // 60:02}:{minutes % 60:02}:{seconds:02}"


def traffic_finding(entry: Entry, name: str, text: str, have: float, need: float) -> Finding:
    held = have <= need
    return Finding(
        requirement=name,
        held=held,
        text=text,
        where=entry.where("require", name),
        hint=None if held else "'kvplan trace' shows when and why",
        have=have,
        need=need,
    )
