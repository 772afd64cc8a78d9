"""`kvplan diff` as text: the verdict, then inputs, resolved values and figures by their effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvplan.guard.figures import shown
from kvplan.words import argument, percent, short

from .render import table


def show_diff(report: dict[str, Any], out: Any) -> None:
    """Print one report to a rich console."""
    if "plans" in report:
        show_fleet(report, out)
        return
    line(out, report["verdict"]["text"], "bold")
    line(out, f"  A  {report['before']['name']}")
    line(out, f"  B  {report['after']['name']}")
    sections = [input_rows(report), resolved_rows(report), figure_rows(report)]
    for headers, rows, right in sections:
        if rows:
            out.print()
            out.print(table(headers, rows, right=right))
    if report["rules_changed"]:
        line(
            out,
            f"  A was recorded by kvplan {report['before']['kvplan']}; this version plans it otherwise",
        )
    for warning in report["warnings"]:
        line(out, f"  warning: {warning}", "yellow")


Rows = Sequence[Sequence[str]]
Section = tuple[tuple[str, ...], list[tuple[Any, ...]], tuple[int, ...]]


def input_rows(report: dict[str, Any]) -> Section:
    """Inputs that changed; what each does alone stands beside its first field."""
    rows = []
    for change in report["inputs"]:
        for position, each in enumerate(change["differences"]):
            effect = alone(change) if position == 0 else '"'
            rows.append(
                (
                    f"  {each['name']}",
                    side(each["before"], each["before_resolved"]),
                    side(each["after"], each["after_resolved"]),
                    effect,
                )
            )
    return ("  input", "A", "B", "alone"), cells(rows), ()


def side(value: Any, resolved: dict[str, Any] | None) -> str:
    """A value, or what the engine chose where it is left open."""
    if resolved is None:
        return short(value)
    return argument(value, resolved["value"], resolved["from"])


def alone(change: dict[str, Any]) -> str:
    """What a change does alone: to the tokens, else to the figure that moves most."""
    if change["alone"] is None:
        return f"refused: {change['problem']}" if change["problem"] else ""
    if change["problem"]:
        return str(change["problem"])
    moved = sorted(change["alone"], key=lambda each: -abs(each["share"]))
    tokens = [each for each in moved if each["name"] == "tokens"]
    if not moved:
        return "no figure moves"
    most = (tokens or moved)[0]
    change_text = percent(most["before"] or 0, most["after"] or 0)
    return f"{most['title']} {change_text}"


def resolved_rows(report: dict[str, Any]) -> Section:
    """Resolved values that differ, with the rule or person behind them."""
    rows = [
        (f"  {each['name']}", short(each["before"]), short(each["after"]), why(each))
        for each in report["resolved"]
    ]
    return ("  resolved", "A", "B", "why"), cells(rows), ()


def why(row: dict[str, Any]) -> str:
    """B's origin; A's before it where the two differ."""
    before, after = row["before_from"], row["after_from"]
    return " → ".join(dict.fromkeys(each for each in (before, after) if each)) or "-"


def figure_rows(report: dict[str, Any]) -> Section:
    """Figures that differ, the largest relative change first; none where a side has none at all."""
    both = report["before"]["starts"] and report["after"]["starts"]
    rows = [
        (
            f"  {each['title']}",
            figure(each, "before"),
            figure(each, "after"),
            percent(each["before"] or 0, each["after"] or 0),
        )
        for each in (report["figures"] if both else ())
    ]
    return ("  figure", "A", "B", "change"), cells(rows), (1, 2, 3)


def figure(row: dict[str, Any], name: str) -> str:
    return "-" if row[name] is None else shown(row["name"], row[name])


def show_fleet(report: dict[str, Any], out: Any) -> None:
    """Plans that moved, with the inputs that moved them; then those of one side alone."""
    line(out, report["verdict"]["text"], "bold")
    for plan in report["plans"]:
        out.print()
        line(out, f"  {plan['name']}: {plan['verdict']['text']}")
        for change in plan["inputs"]:
            for each in change["differences"]:
                line(
                    out,
                    f"    {each['name']} {side(each['before'], each['before_resolved'])}"
                    f" → {side(each['after'], each['after_resolved'])}: {alone(change)}",
                )
        if plan["rules_changed"]:
            line(out, f"    kvplan {plan['before']['kvplan']} → {plan['after']['kvplan']}")
    for what in ("added", "removed"):
        for name in report[what]:
            line(out, f"  {what}: {name}")


def cells(rows: Rows) -> list[tuple[Any, ...]]:
    """Cells in which nothing is markup."""
    from rich.text import Text

    return [tuple(Text(cell) for cell in row) for row in rows]


def line(out: Any, text: str, style: str | None = None) -> None:
    """One line in which nothing is markup."""
    out.print(text, style=style, markup=False)
