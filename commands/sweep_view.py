"""`kvplan sweep` as text: the verdict, then rows, those of the front marked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import msgspec

from kvplan.report.sweep import chosen_rows, sweep_report
from kvplan.search.kinds import Cell, Column
from kvplan.search.sweep import Swept
from kvplan.search.sweep_plan import PARETO, REASON, STARTS, STATUS

from .render import gib

GAP = "  "
MIN_HEADER = 8
STYLES = {True: "bold green", False: "bold red"}


class Shown(msgspec.Struct, frozen=True):
    """A column as it is printed: lines of its name, its cells, its width."""

    header: list[str]
    cells: list[str]
    right: bool

    @property
    def width(self) -> int:
        return max(map(len, [*self.header, *self.cells]))

    def padded(self, word: str) -> str:
        return word.rjust(self.width) if self.right else word.ljust(self.width)


def show_sweep(swept: Swept, out: Any, *, limit: int) -> None:
    """Print a sweep to a rich console."""
    report = sweep_report(swept)
    verdict = report["verdict"]
    out.print(verdict["text"], style=STYLES[verdict["starts"]])
    rows = list(chosen_rows(swept, limit))
    if rows:
        out.print()
        for line in table_lines(shown_columns(swept.sweep.columns, rows)):
            out.print(line)
    rest = swept.tally.rows - len(rows)
    if rest:
        out.print(f"  {rest:,} more rows: --output FILE.csv writes all, --limit prints more")
    for warning in report["warnings"]:
        out.print(f"  warning: {warning}", style="yellow")


def shown_columns(columns: tuple[Column, ...], rows: list[list[Cell]]) -> list[Shown]:
    """The marks of the front, then the columns that tell one row from another."""
    cells = {column.name: [row[place] for row in rows] for place, column in enumerate(columns)}
    shown = [Shown([], ["*" if flag else " " for flag in cells.pop(PARETO.name)], False)]
    for column in columns:
        if column == PARETO or silent(column, cells[column.name]):
            continue
        words = [text(column, cell) for cell in cells[column.name]]
        shown.append(Shown(folded(column.name, words), words, column.kind != "text"))
    return shown


def silent(column: Column, cells: list[Cell]) -> bool:
    """Whether a column says nothing here: no cell, or that every row starts."""
    return set(cells) <= ({STARTS} if column == STATUS else {None})


def table_lines(columns: list[Shown]) -> Iterator[str]:
    """Header, rule and rows; lines are as long as they are, so that no number is cut."""
    heights = max(len(column.header) for column in columns)
    headers = [[""] * (heights - len(column.header)) + column.header for column in columns]
    for words in zip_longest(*headers, fillvalue=""):
        yield joined(columns, words)
    yield "─" * len(joined(columns, [""] * len(columns), strip=False))
    for words in zip(*(column.cells for column in columns), strict=True):
        yield joined(columns, words)


def joined(columns: list[Shown], words: Any, *, strip: bool = True) -> str:
    line = GAP.join(column.padded(word) for column, word in zip(columns, words, strict=True))
    return line.rstrip() if strip else line


def folded(name: str, words: list[str]) -> list[str]:
    """A column's name on lines no wider than its cells, where its parts allow it."""
    room = max([MIN_HEADER, *map(len, words)])
    lines = [""]
    for part in re.split(r"(?<=_)", name):
        if lines[-1] and len(lines[-1]) + len(part) > room:
            lines.append("")
        lines[-1] += part
    return lines


def text(column: Column, cell: Cell) -> str:
    """A cell as it is read: thousands apart, bytes as GiB."""
    if cell is None:
        return "" if column == REASON else "–"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, str):
        return cell
    if column.unit == "bytes" and column.name != "token_bytes":
        return gib(cell)
    return f"{cell:,.0f}" if cell == int(cell) else f"{cell:,.6g}"
