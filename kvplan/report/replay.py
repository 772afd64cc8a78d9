"""A replay as plain values, ready for JSON, CSV, HTML or a table."""

from __future__ import annotations

from typing import Any

import msgspec

from kvplan.replay.conditions import COUNTED, DOES_NOT_FIT, Condition
from kvplan.replay.gauges import PoolUse
from kvplan.replay.outcome import Latency, Outcome
from kvplan.replay.result import ReplayResult
from kvplan.replay.timeline import Point
from kvplan.replay.workloads.summary import WorkloadSummary
from kvplan.report.replay_remedies import (
    LONG_WAIT_NS,
    remedies_report,
    short_limits,
    without_remedy,
)
from kvplan.sizing.plan import Plan
from kvplan.units import NS_PER_S

SCHEMA = "kvplan.trace/1"


def trace_report(
    outcome: Outcome,
    plan: Plan,
    workload: WorkloadSummary | None,
    *,
    source: str = "",
    detected: str = "",
    conditions: tuple[Condition, ...] = DOES_NOT_FIT,
    assumed: tuple[str, ...] = (),
    warnings: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The whole answer of `kvplan trace`; without a workload operations were played.

    These have no scheduler: what would be its figures is null.

    `source` is what the user called the workload, `detected` says how its file was read.
    """
    result, scheduled = outcome.result, workload is not None
    failed = [str(condition) for condition in conditions if condition.fails(result)]
    failed += [check.name for check in outcome.checks if check.state == "broken"]
    short = short_limits(plan, result) if scheduled else {}
    return {
        "schema": SCHEMA,
        "verdict": {
            "fits": result.fits and outcome.violation is None,
            "passes": not failed and not outcome.was_stopped,
            "complete": result.complete,
            "failed": failed,
            "text": verdict(outcome, failed, scheduled=scheduled),
        },
        "launch": launch_report(plan, outcome),
        "source": source,
        "detected": detected,
        "workload": None if workload is None else msgspec.to_builtins(workload),
        "pools": [pool_report(pool) for pool in result.pools],
        "requests": requests_report(result) if scheduled else None,
        "remedies": remedies_report(short),
        "queue": queue_report(result) if scheduled else None,
        "prefix": prefix_report(result) if scheduled else None,
        "pages": pages_report(result) if scheduled else None,
        "steps": steps_report(result, scheduled=scheduled),
        "reserve": None if outcome.reserve is None else msgspec.structs.asdict(outcome.reserve),
        "verification": [msgspec.structs.asdict(check) for check in outcome.checks],
        "violation": violation_report(outcome),
        "speed": speed_report(outcome),
        "assumed": list(assumed),
        "warnings": [*warnings, *without_remedy(short, result)],
        "timeline": timeline_report(result.timeline),
    }


def verdict(outcome: Outcome, failed: list[str], *, scheduled: bool = True) -> str:
    """One line: whether the workload fits the pools, and by how much.

    Operations, which are played as they stand, only show that nothing broke.
    """
    result = outcome.result
    if outcome.violation is not None:
        return f"broken: {outcome.violation.check}: {outcome.violation.sentence()}"
    fullest = result.fullest
    peak = f"peak {fullest.share:.0%} of {fullest.capacity:,} {fullest.unit}"
    peak += f" ({fullest.name})" if len(result.pools) > 2 else ""
    if not scheduled:
        text = f"{result.num_steps:,} operations played, nothing broken; {peak}"
    elif result.fits:
        text = f"fits, {peak}"
    else:
        text = f"does not fit: {', '.join(troubles(result))}; {peak}"
    if result.wait_ns.p99 >= LONG_WAIT_NS:
        text += f"; requests wait up to {result.wait_ns.max / NS_PER_S:,.0f} s"
    others = [name for name in failed if name not in COUNTED]
    if not result.fits and not failed:
        text += "; --fail-on lets that pass"
    if others:
        text += f"; fails: {', '.join(others)}"
    return text if result.complete else f"partial, stopped {reached(result)}: {text}"


def reached(result: ReplayResult) -> str:
    """How far a replay came; operations have no times."""
    return f"at {clock(result.end_ns)}" if result.end_ns else f"after {result.num_steps:,} steps"


def troubles(result: ReplayResult) -> list[str]:
    """Retractions and rejections in words."""
    found = []
    if result.num_retractions:
        first = clock(result.first_retraction_ns or 0)
        noun = "retraction" if result.num_retractions == 1 else "retractions"
        found.append(f"{result.num_retractions:,} {noun}, first at {first}")
    if result.num_rejected:
        noun = "request" if result.num_rejected == 1 else "requests"
        found.append(f"{result.num_rejected:,} {noun} rejected")
    return found


def clock(time_ns: int) -> str:
    """Replayed time as hours, minutes and seconds, down."""
    minutes, whole = divmod(time_ns // NS_PER_S, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{whole:02}"


def seconds(time_ns: int) -> float:
    return round(time_ns / NS_PER_S, 6)


def launch_report(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    """What was replayed, and on what."""
    server = msgspec.to_builtins(outcome.result.server)
    return {
        "model": plan.model.name,
        "gpu": plan.gpu.name,
        "server": server,
        "engine": outcome.engine,
        "device": outcome.device,
        "kv_scale": outcome.kv_scale,
        "rank": outcome.rank,
        "ranks": outcome.num_ranks,
    }


def steps_report(result: ReplayResult, *, scheduled: bool) -> dict[str, Any]:
    """Steps by what they launched; operations have no scheduler that launched any."""
    return {
        "total": result.num_steps,
        "prefill": result.prefill_steps if scheduled else None,
        "decode": result.decode_steps if scheduled else None,
        "end_s": seconds(result.end_ns) if scheduled else None,
    }


def pool_report(pool: PoolUse) -> dict[str, Any]:
    """One pool with its peak as a share and on the clock."""
    report = msgspec.structs.asdict(pool)
    report["share"] = round(pool.share, 6)
    report["peak_s"] = seconds(report.pop("peak_ns"))
    return report


def requests_report(result: ReplayResult) -> dict[str, Any]:
    """What became of every request."""
    first = result.first_retraction_ns
    return {
        "arrived": result.num_requests,
        "finished": result.num_finished,
        "output_tokens": result.output_tokens,
        "clipped": result.num_clipped,
        "retractions": result.num_retractions,
        "first_retraction_s": None if first is None else seconds(first),
        "aborted": result.num_aborted,
        "rejected": result.num_rejected,
        "rejections": result.rejections,
    }


def queue_report(result: ReplayResult) -> dict[str, Any]:
    """How long requests waited for their first part, in seconds."""
    waited = msgspec.structs.asdict(result.wait_ns)
    return {
        "peak_waiting": result.peak_waiting,
        "peak_running": result.peak_running,
        "wait_s": {name: seconds(value) for name, value in waited.items()},
    }


def prefix_report(result: ReplayResult) -> dict[str, Any]:
    """Prefix hits in tokens; those of retracted requests apart."""
    return {
        "hit_rate": round(result.hit_rate, 6),
        "hit_tokens": result.hit_tokens,
        "computed_tokens": result.computed_tokens,
        "retracted_hit_tokens": result.rehit_tokens,
        "recomputed_tokens": result.recomputed_tokens,
        "evicted_tokens": result.evicted_tokens,
    }


def pages_report(result: ReplayResult) -> dict[str, Any]:
    """Tokens that were allocated and hold nothing."""
    finished = result.num_finished
    return {
        "page_size": result.server.page_size,
        "wasted_tokens_per_request": round(result.wasted_tokens / finished, 3) if finished else 0.0,
        "peak_wasted_tokens": max((point.waste for point in result.timeline), default=0),
    }


def violation_report(outcome: Outcome) -> dict[str, Any] | None:
    """A broken invariant, and the shortest prefix that still breaks it."""
    if outcome.violation is None:
        return None
    report = msgspec.structs.asdict(outcome.violation)
    return report | {"shortest_failing_operations": outcome.shrunk}


def speed_report(outcome: Outcome) -> dict[str, Any]:
    """What the replay itself took: the only part that differs from run to run."""
    result, wall_s = outcome.result, outcome.wall_s
    events = result.num_steps + result.num_requests + result.num_finished
    return {
        "wall_s": round(wall_s, 3),
        "events": events,
        "events_per_s": round(events / wall_s) if wall_s else None,
        "allocator": [latency_report(latency) for latency in outcome.latencies],
        "compiled_kernels": outcome.compiled,
    }


def latency_report(latency: Latency) -> dict[str, Any]:
    """Percentiles in µs, and calls and tokens a second of the time spent in the allocator."""
    total = latency.total_ns or 1
    return {
        "operation": latency.operation,
        "calls": latency.calls,
        "tokens": latency.tokens,
        "p50_us": round(latency.p50_ns / 1000, 1),
        "p99_us": round(latency.p99_ns / 1000, 1),
        "calls_per_s": latency.calls * NS_PER_S // total,
        "tokens_per_s": latency.tokens * NS_PER_S // total,
    }


def timeline_report(points: tuple[Point, ...]) -> dict[str, list[Any]]:
    """Columns over time; times in seconds."""
    columns: dict[str, list[Any]] = {
        "t_s": [round(point.t_ns / NS_PER_S, 3) for point in points],
        "end_s": [round(point.end_ns / NS_PER_S, 3) for point in points],
    }
    for name in Point.__struct_fields__[2:]:
        columns[name] = [getattr(point, name) for point in points]
    return columns


def shares(line: dict[str, list[Any]], capacity: int, width: int) -> list[float]:
    """The used tokens of a timeline as `width` shares of a capacity, the largest of each part of the time.

    Parts in which nothing ran are empty; fewer points than parts in all are a part each.
    """
    times_s, values = line["t_s"], line["used"]
    start_s, span_s = (times_s[0], line["end_s"][-1] - times_s[0]) if times_s else (0.0, 0.0)
    parts = [0.0] * min(width, len(values))

    def part_at(time_s: float) -> int:
        return min(len(parts) - 1, int((time_s - start_s) / span_s * len(parts))) if span_s else 0

    for at_s, end_s, value in zip(times_s, line["end_s"], values, strict=True):
        for part in range(part_at(at_s), part_at(end_s) + 1):
            parts[part] = max(parts[part], value / capacity)
    return parts
