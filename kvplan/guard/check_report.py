"""The outcome of a check as a plain mapping, from which every format is made."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from kvplan.guard.check import Checked
from kvplan.guard.requirements import Finding
from kvplan.words import printable

SCHEMA = "kvplan.check/1"
PLACE = re.compile(r"(.*?)(?::(\d+))?(?::(\d+))?", re.DOTALL)
RULES: dict[str, str] = {
    "input": "The budget file can be read and its launch planned.",
    "starts": "The launch starts, or is refused where 'starts: false' says so.",
    "fits_full_context": "One request of the whole context length fits.",
    "min_requests": "So many requests of a context length fit at once, on one DP rank.",
    "min_tokens": "The KV pool holds at least so many tokens (max_total_num_tokens).",
    "max_kv_gib": "The KV pools of the fullest card take at most so much.",
    "min_headroom_gib": "The fullest card keeps so much for graphs and activations.",
    "max_row_width": "A row of req_to_token is at most so wide.",
    "max_req_to_token_mib": "req_to_token takes at most so much of a card.",
    "max_host_gib": "The host tier takes at most so much of a machine.",
    "no_retractions": "The workload replays without a retraction.",
    "no_rejections": "The workload replays without a rejection.",
    "max_occupancy": "The workload keeps the KV pool below this share.",
    "no_regress": "No capacity falls further below the lock file than allowed.",
}


def check_report(results: Sequence[Checked], lock: dict[str, Any] | None = None) -> dict[str, Any]:
    """Everything `kvplan check` knows."""
    counts = {"holds": 0, "broken": 0, "bad": 0}
    for checked in results:
        counts[checked.status] += 1
    report = {
        "schema": SCHEMA,
        "verdict": {"holds": counts["holds"] == len(results), "text": verdict(counts)},
        "counts": counts,
        "budgets": [budget_report(checked) for checked in results],
    }
    if lock is not None:
        report["lock"] = lock
    return report


def verdict(counts: dict[str, int]) -> str:
    """How many budgets hold, in one line."""
    total = sum(counts.values())
    noun = "budget" if total == 1 else "budgets"
    if counts["holds"] == total:
        return f"{total} {noun} held" if total > 1 else "the budget is held"
    parts = [f"{counts['broken']} broken"] if counts["broken"] else []
    parts += [f"{counts['bad']} not readable"] if counts["bad"] else []
    return f"{' and '.join(parts)} of {total} {noun}"


def budget_report(checked: Checked) -> dict[str, Any]:
    """One budget: its findings, or why it could not be read."""
    report: dict[str, Any] = {
        "name": printable(checked.title),
        "place": place(checked.where),
        "status": checked.status,
        "findings": [finding_report(finding) for finding in checked.findings],
        "warnings": [printable(warning) for warning in checked.warnings],
    }
    if checked.refusal is not None:
        report["error"] = {
            "problem": printable(checked.refusal.problem),
            "hint": printable(checked.refusal.hint or "") or None,
        }
    return report


def finding_report(finding: Finding) -> dict[str, Any]:
    return {
        "requirement": finding.requirement,
        "held": finding.held,
        "text": printable(finding.text),
        "hint": printable(finding.hint or "") or None,
        "have": finding.have,
        "need": finding.need,
        "place": place(finding.where),
    }


def place(where: str) -> dict[str, Any]:
    """`file:line:column` taken apart; a file alone starts at its first character."""
    match = PLACE.fullmatch(where)
    assert match is not None
    file, line, column = match.groups()
    return {"file": printable(file), "line": int(line or 1), "column": int(column or 1)}


def spelled(place: dict[str, Any]) -> str:
    """`file:line:column` of a place."""
    return f"{place['file']}:{place['line']}:{place['column']}"


def problems(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Everything that fails, broken requirements and refusals; the id stays while lines move."""
    found: list[dict[str, Any]] = []
    for budget in report["budgets"]:
        if "error" in budget:
            error = budget["error"]
            found.append(problem(budget, "input", error["problem"], error["hint"], budget["place"]))
        found += [
            problem(budget, each["requirement"], each["text"], each["hint"], each["place"])
            for each in budget["findings"]
            if not each["held"]
        ]
    seen: dict[str, int] = {}
    for each in found:
        number = seen[each["id"]] = seen.get(each["id"], 0) + 1
        each["id"] += f" ({number})" if number > 1 else ""
    return found


def problem(
    budget: dict[str, Any], requirement: str, text: str, hint: str | None, place: dict[str, Any]
) -> dict[str, Any]:
    return {
        "id": f"{budget['name']}: {requirement}",
        "budget": budget["name"],
        "requirement": requirement,
        "text": text,
        "hint": hint,
        "place": place,
    }
