"""A check as JUnit XML: a suite a budget, a case a requirement."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape, quoteattr

from kvplan.guard.check_report import spelled


def junit_text(report: dict[str, Any]) -> str:
    """The XML document; times are left at 0 so that the same check gives the same bytes."""
    suites = [suite(budget) for budget in report["budgets"]]
    sums = {name: sum(int(each[0][name]) for each in suites) for name in COUNTS}
    body = [
        line
        for counts, lines in suites
        for line in (f"  <testsuite {attributes(counts)}>", *lines, "  </testsuite>")
    ]
    root = attributes({"name": "kvplan check", **sums, "time": "0"})
    return "\n".join([DECLARATION, f"<testsuites {root}>", *body, "</testsuites>", ""])


def suite(budget: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Attributes of a budget's suite, and the lines of its cases."""
    if "error" in budget:
        error = budget["error"]
        cases = [case(budget, "input", "error", error["problem"], error["hint"], budget["place"])]
    else:
        cases = [
            case(
                budget,
                each["requirement"],
                None if each["held"] else "failure",
                each["text"],
                each["hint"],
                each["place"],
            )
            for each in budget["findings"]
        ]
    counts = {
        "name": budget["name"],
        "tests": len(cases),
        "failures": sum(not each["held"] for each in budget["findings"]),
        "errors": int("error" in budget),
        "skipped": 0,
        "time": "0",
    }
    return counts, [line for lines in cases for line in lines]


def case(
    budget: dict[str, Any],
    name: str,
    outcome: str | None,
    text: str,
    hint: str | None,
    place: dict[str, Any],
) -> list[str]:
    """The lines of one case; what it found is its output, or its failure."""
    opening = attributes({"classname": budget["name"], "name": name, "time": "0"})
    if outcome is None:
        inner = f"      <system-out>{escape(text)}</system-out>"
    else:
        told = attributes({"type": name, "message": text})
        detail = "\n".join([f"{spelled(place)}: {text}", *([f"hint: {hint}"] if hint else [])])
        inner = f"      <{outcome} {told}>{escape(detail)}</{outcome}>"
    return [f"    <testcase {opening}>", inner, "    </testcase>"]


def attributes(values: dict[str, Any]) -> str:
    return " ".join(f"{name}={quoteattr(str(value))}" for name, value in values.items())


COUNTS = ("tests", "failures", "errors")
DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>'
