"""`kvplan log` as text: the verdict, each figure beside the plan's, what else the log says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .render import table

MARKS = {True: " ", False: "*"}
FEW = 3  # values of one figure that are shown


def show_log(report: dict[str, Any], out: Any) -> None:
    """Print one comparison to a rich console."""
    verdict = report["verdict"]
    out.print(verdict["text"], style="bold green" if verdict["agrees"] else "bold red")
    out.print(f"  {source(report)}")
    out.print()
    if report["rows"]:
        headers = ("  figure (* differs)", "plan", "log", "log − plan", "from", "line")
        several = len({row["rank"] for row in report["rows"]}) > 1
        lines = [cells(row, show_rank=several) for row in report["rows"]]
        out.print(table(headers, lines, right=(1, 2, 3, 5)))
    show_causes(report, out)
    show_extracted(report, out)
    for event in report["events"]:
        out.print(f"  line {event['line']}: {event['text'][:160]}")
    for warning in report["warnings"]:
        out.print(f"  warning: {warning}", style="yellow")
    if report["ignored"]:
        out.print(f"  no say in sizing: {', '.join(report['ignored'])}")
    for title in ("assumed", "not_modelled"):
        if report[title]:
            out.print(f"  {title.replace('_', ' ')}: {'; '.join(report[title])}")


def source(report: dict[str, Any]) -> str:
    """The log, its launch and the memory that the plan stands on."""
    log, launch, memory = report["log"], report["launch"], report["memory"]
    ranks = len(log["ranks"]) or 1
    parts = [
        f"{log['file']}: {ranks} rank{'s' if ranks > 1 else ''}",
        " + ".join(filter(None, (launch["model"], launch["draft"]))),
        launch["gpu"],
        f"fraction {memory['mem_fraction_static']:g}",
    ]
    if memory["before"] and memory["after"]:
        parts.append(f"{memory['before']['gib']:.2f} → {memory['after']['gib']:.2f} GiB free")
    return " · ".join(parts)


def cells(row: dict[str, Any], *, show_rank: bool) -> tuple[str, ...]:
    """One line of the comparison."""
    mark = MARKS[row["agrees"] or not row["counts"]]
    rank = f" [{row['rank']}]" if show_rank else ""
    return (
        f"{mark} {row['label']}{rank}",
        predicted(row),
        number(row["observed"], row),
        signed(row["difference"], row),
        row["basis"],
        str(row["line"]),
    )


def predicted(row: dict[str, Any]) -> str:
    """The prediction, as a range where memory bounds it."""
    low, high = number(row["low"], row), number(row["high"], row)
    unit = f" {row['unit']}" if row["unit"] else ""
    return f"{low}{unit}" if low == high else f"{low} … {high}{unit}"


def number(value: float, row: dict[str, Any]) -> str:
    """A count with commas, a size with as many digits as the log prints."""
    if isinstance(value, int):
        return f"{value:,}"
    digits = 0 if not row["rounding"] else max(0, len(f"{row['rounding']:.10f}".rstrip("0")) - 3)
    return f"{value:,.{digits}f}"


def signed(value: float, row: dict[str, Any]) -> str:
    """A difference; nothing where there is none to see."""
    text = number(value, row)
    plain = text.lstrip("-")
    if not plain.strip("0.,"):
        return ""
    return text if text.startswith("-") else f"+{text}"


def show_causes(report: dict[str, Any], out: Any) -> None:
    """Each cause once, with the figures that it moves."""
    start = report["start"]
    if start["cause"]:
        out.print(f"  start: {start['cause']['text']} ({start['cause']['name']})")
    for (name, text), labels in grouped(report["rows"]):
        out.print(f"  {', '.join(labels)}: {text} ({name})")


def grouped(rows: Iterable[dict[str, Any]]) -> list[tuple[tuple[str, str], list[str]]]:
    """Labels of the rows by cause, in order."""
    groups: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["cause"]:
            labels = groups.setdefault((row["cause"]["name"], row["cause"]["text"]), [])
            if row["label"] not in labels:
                labels.append(row["label"])
    return list(groups.items())


def show_extracted(report: dict[str, Any], out: Any) -> None:
    """What else the log says: figures that no plan predicts."""
    compared = {(row["figure"], row["draft"]) for row in report["rows"]}
    others: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    for figure in report["figures"]:
        if (figure["figure"], figure["draft"]) not in compared:
            others.setdefault((figure["figure"], figure["draft"]), []).append(figure)
    if others:
        texts = [extracted(name, draft, found) for (name, draft), found in others.items()]
        out.print(f"  also logged: {'; '.join(texts)}")


def extracted(name: str, draft: bool, found: list[dict[str, Any]]) -> str:
    """A figure with its distinct values and the first line."""
    values = list(dict.fromkeys(str(figure["value"]) for figure in found))
    shown = ", ".join(values[:FEW]) + (
        f" and {len(values) - FEW} more" if len(values) > FEW else ""
    )
    label = found[0]["label"] if found[0]["label"] != name else name
    return f"{'draft ' if draft else ''}{label} {shown} (line {found[0]['line']})"
