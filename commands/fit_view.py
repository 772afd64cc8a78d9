"""`kvplan fit` as text: the answer, the values beside it, or what each knob alone can do."""

from __future__ import annotations

from typing import Any

from .render import gib, table

Cells = tuple[str, ...]


def show_fit(report: dict[str, Any], out: Any) -> None:
    """Print one search to a rich console."""
    verdict = report["verdict"]
    out.print(verdict["text"], style="bold green" if verdict["found"] else "bold red")
    out.print()
    if len(report["knobs"]) == 1:
        show_one(report, out)
    elif report["knobs"]:
        show_many(report, out)
    for skipped in report["skipped"]:
        out.print(f"  --{skipped['knob']}: {skipped['reason']}")
    for warning in report["warnings"]:
        out.print(f"  warning: {warning}", style="yellow")
    if report["ignored"]:
        out.print(f"  no say in sizing: {', '.join(report['ignored'])}")
    if report["assumed"]:
        out.print(f"  assumed: {'; '.join(report['assumed'])}")


def show_one(report: dict[str, Any], out: Any) -> None:
    """The found value between its neighbours, and the launch as it stands."""
    knob = report["knobs"][0]
    rows = [cells(trial, mark(trial, knob), trial["shown"]) for trial in knob["neighbours"]]
    rows.append(cells(report["now"], " ", "as it is"))
    headers = (f"  --{knob['knob']}", *HEADERS)
    out.print(table(headers, rows, right=(1, 2, 3, 4)))
    out.print(f"  {knob['tried']:,} values sized")


def show_many(report: dict[str, Any], out: Any) -> None:
    """Every knob alone, a line each."""
    found = [knob for knob in report["knobs"] if knob["found"]]
    rows = [cells(knob["proof"], "*", knob["flags"]) for knob in found]
    rows.append(cells(report["now"], " ", "as it is"))
    out.print(table(("  one knob alone", *HEADERS), rows, right=(1, 2, 3, 4)))
    for knob in report["knobs"]:
        if not knob["found"]:
            out.print(f"  no --{knob['knob']}: {knob['reason']}")


HEADERS = ("tokens", "requests", "of tokens", "stays free", "")


def mark(trial: dict[str, Any], knob: dict[str, Any]) -> str:
    """A star at the value that was found."""
    return "*" if knob["found"] and trial["value"] == knob["value"] else " "


def cells(trial: dict[str, Any], star: str, name: str) -> Cells:
    """One value: what the launch gets with it, and what it misses."""
    if "tokens" not in trial:
        return (f"{star} {name}", "-", "-", "-", "-", trial["misses"])
    note = trial["misses"] or "holds"
    if len(trial["fills"]) > 1:
        rooms = ", ".join(f"{pool} {room:,.1f}" for pool, room in trial["fills"].items())
        note = f"{note} · room {rooms}"
    return (
        f"{star} {name}",
        f"{trial['tokens']:,}",
        f"{trial['requests']:,}",
        f"{trial['context_tokens']:,}",
        gib(trial["headroom_bytes"]),
        note,
    )
