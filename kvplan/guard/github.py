"""A check as GitHub workflow commands, which annotate the budgets in a pull request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvplan.guard.check_report import problems

DATA = (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"))
PROPERTY = (*DATA, (":", "%3A"), (",", "%2C"))


def github_text(report: dict[str, Any]) -> str:
    """One error a problem, one warning a remark, the verdict as a notice."""
    return "".join(f"{line}\n" for line in commands(report))


def commands(report: dict[str, Any]) -> Iterator[str]:
    for each in problems(report):
        hint = f"\nhint: {each['hint']}" if each["hint"] else ""
        title = f"kvplan: {each['requirement']}"
        yield command("error", each["place"], title, f"{each['text']}{hint}")
    for budget in report["budgets"]:
        for warning in budget["warnings"]:
            yield command("warning", budget["place"], "kvplan", warning)
    yield f"::notice title=kvplan::{escaped(report['verdict']['text'], DATA)}"


def command(level: str, place: dict[str, Any], title: str, message: str) -> str:
    """`::error file=…,line=…,col=…,title=…::message`."""
    properties = {
        "file": place["file"],
        "line": str(place["line"]),
        "col": str(place["column"]),
        "title": title,
    }
    listed = ",".join(f"{name}={escaped(value, PROPERTY)}" for name, value in properties.items())
    return f"::{level} {listed}::{escaped(message, DATA)}"


def escaped(text: str, table: tuple[tuple[str, str], ...]) -> str:
    for character, code in table:
        text = text.replace(character, code)
    return text
