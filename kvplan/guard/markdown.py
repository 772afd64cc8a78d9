"""A check as Markdown, for a job summary or a comment on a pull request."""

from __future__ import annotations

import re
from typing import Any

from kvplan.guard.check_report import spelled

SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~])")
SIGNS = {"holds": "holds", "broken": "**broken**", "bad": "**not readable**"}


def markdown_text(report: dict[str, Any]) -> str:
    """The verdict, a table of the budgets, then each problem with what would mend it."""
    lines = [f"## kvplan check: {plain(report['verdict']['text'])}", ""]
    lines += ["| budget | | found |", "| --- | --- | --- |"]
    lines += [row(budget) for budget in report["budgets"]]
    for budget in report["budgets"]:
        lines += details(budget)
    if "lock" in report:
        lines += ["", plain(report["lock"]["text"])]
    return "\n".join(lines) + "\n"


def row(budget: dict[str, Any]) -> str:
    """A budget with its first finding: the verdict of its plan."""
    error = budget.get("error")
    found = error["problem"] if error else budget["findings"][0]["text"]
    return f"| {plain(budget['name'])} | {SIGNS[budget['status']]} | {plain(found)} |"


def details(budget: dict[str, Any]) -> list[str]:
    """The problems and warnings of one budget."""
    lines = []
    if "error" in budget:
        error = budget["error"]
        lines.append(item(budget["place"], None, error["problem"], error["hint"]))
    lines += [
        item(each["place"], each["requirement"], each["text"], each["hint"])
        for each in budget["findings"]
        if not each["held"]
    ]
    lines += [f"- warning: {plain(warning)}" for warning in budget["warnings"]]
    return ["", f"### {plain(budget['name'])}", "", *lines] if lines else []


def item(place: dict[str, Any], requirement: str | None, text: str, hint: str | None) -> str:
    name = f"`{requirement}`: " if requirement else ""
    mend = f"; hint: {plain(hint)}" if hint else ""
    return f"- {plain(spelled(place))}: {name}{plain(text)}{mend}"


def plain(text: str) -> str:
    """Text in which nothing is markup."""
    return SPECIAL.sub(r"\\\1", text)
