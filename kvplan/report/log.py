"""A log and its comparison with a plan as plain values, ready for JSON or a table."""

from __future__ import annotations

from typing import Any

from kvplan.guard.log_compare import Comparison
from kvplan.guard.log_memory import Reading
from kvplan.guard.log_rows import LABELS, Cause, Row
from kvplan.guard.server_log import Figure

SCHEMA = "kvplan.log/1"


def log_report(
    comparison: Comparison, *, notes: tuple[str, ...] = (), ignored: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The whole answer of `kvplan log`."""
    log, outcome = comparison.log, comparison.planned.outcome
    return {
        "schema": SCHEMA,
        "verdict": {"agrees": comparison.agrees, "text": verdict(comparison)},
        "log": {
            "file": log.file,
            "ranks": [rank for rank in log.ranks if rank],
            "starts": log.starts,
            "truncated": log.truncated,
        },
        "launch": {
            "model": outcome.model.name,
            "draft": outcome.draft.name if outcome.draft else None,
            "gpu": outcome.gpu.name,
        },
        "memory": {
            "measured": comparison.measured.complete,
            "before": reading_report(comparison.measured.before),
            "after": reading_report(comparison.measured.after),
            "mem_fraction_static": outcome.resolved.mem_fraction_static,
        },
        "start": {
            "logged": comparison.start.logged,
            "planned": comparison.start.planned,
            "agrees": comparison.start.agrees,
            "cause": cause_report(comparison.start.cause),
        },
        "rows": [row_report(row) for row in comparison.rows],
        "figures": [figure_report(figure) for figure in log.figures],
        "events": [
            {"kind": event.kind, "text": event.text, "line": event.line, "rank": event.rank}
            for event in log.events
        ],
        "warnings": [*outcome.resolved.warnings, *notes],
        "assumed": list(comparison.planned.estimate.assumed),
        "not_modelled": list(outcome.resolved.not_modelled),
        "ignored": list(ignored),
    }


def verdict(comparison: Comparison) -> str:
    """The answer in one line."""
    if not comparison.start.agrees:
        logged = "started" if comparison.start.logged else "did not start"
        planned = "starts" if comparison.start.planned else "does not start"
        return f"differs: the server {logged}, the plan {planned}"
    if not comparison.compared:
        if comparison.start.logged is False:
            return "agrees: neither the server nor the plan starts"
        return "nothing to compare: no figure of this log follows from a plan"
    differing = len(comparison.differing)
    if differing:
        return f"differs: {differing} of {comparison.compared} figures"
    return f"agrees: {comparison.compared} figures, within the digits that the log prints"


def reading_report(reading: Reading | None) -> dict[str, Any] | None:
    """Free memory of the rank that has least, with its lines."""
    if reading is None:
        return None
    return {
        "gib": reading.gib,
        "half_digit_gib": reading.half_digit_gib,
        "lines": [figure.line for figure in reading.figures],
        "ranks": [figure.rank for figure in reading.figures],
    }


def row_report(row: Row) -> dict[str, Any]:
    """One comparison; `low` and `high` are what the plan allows."""
    return {
        "figure": row.name,
        "label": row.label,
        "unit": row.unit,
        "draft": row.figure.draft,
        "line": row.figure.line,
        "rank": row.figure.rank,
        "predicted": row.predicted,
        "low": row.low,
        "high": row.high,
        "observed": row.observed,
        "rounding": row.figure.rounding,
        "difference": row.difference,
        "basis": row.basis,
        "counts": row.counts,
        "agrees": row.agrees,
        "cause": cause_report(row.cause),
    }


def cause_report(cause: Cause | None) -> dict[str, str] | None:
    return None if cause is None else {"name": cause.name, "text": cause.text}


def figure_report(figure: Figure) -> dict[str, Any]:
    return {
        "figure": figure.name,
        "label": LABELS.get(figure.name, figure.name),
        "value": figure.value,
        "line": figure.line,
        "rank": figure.rank,
        "draft": figure.draft,
    }
