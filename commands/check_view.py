"""`kvplan check` as text: the verdict, then each budget with what it found."""

from __future__ import annotations

from typing import Any

from kvplan.guard.check_report import spelled

STYLES = {"holds": "green", "broken": "bold red", "bad": "bold red"}
WORDS = {"holds": "holds", "broken": "broken", "bad": "not readable"}


def show_check(report: dict[str, Any], out: Any) -> None:
    """Print one report to a rich console."""
    held = report["verdict"]["holds"]
    line(out, report["verdict"]["text"], "bold green" if held else "bold red")
    for budget in report["budgets"]:
        out.print()
        show_budget(budget, out)
    if "lock" in report:
        out.print()
        line(out, report["lock"]["text"])


def show_budget(budget: dict[str, Any], out: Any) -> None:
    """A budget's plan in a line, then what is broken and what would mend it."""
    status = budget["status"]
    line(out, f"{WORDS[status]}: {budget['name']}", STYLES[status])
    if "error" in budget:
        show_problem(out, budget["place"], budget["error"]["problem"], budget["error"]["hint"])
    for finding in budget["findings"]:
        if finding["held"]:
            line(out, f"  {finding['text']}")
        else:
            text = f"{finding['requirement']}: {finding['text']}"
            show_problem(out, finding["place"], text, finding["hint"])
    for warning in budget["warnings"]:
        line(out, f"  warning: {warning}", "yellow")


def show_problem(out: Any, place: dict[str, Any], text: str, hint: str | None) -> None:
    line(out, f"  {spelled(place)}: {text}", "red")
    if hint:
        line(out, f"    hint: {hint}")


def line(out: Any, text: str, style: str | None = None) -> None:
    """One line in which nothing is markup."""
    out.print(text, style=style, markup=False)
