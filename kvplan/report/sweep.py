"""A sweep as plain values: the verdict, what was varied, and rows for a table or a file."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from kvplan.search.kinds import Cell
from kvplan.search.sweep import Swept
from kvplan.search.sweep_plan import LEFT_OUT, STARTS, STATUSES

SCHEMA = "kvplan.sweep/1"
ROWS = '"rows": []'


def sweep_report(swept: Swept) -> dict[str, Any]:
    """Everything but the rows, which may be millions."""
    sweep, tally = swept.sweep, swept.tally
    return {
        "schema": SCHEMA,
        "verdict": {"starts": tally.counts[STARTS] > 0, "text": verdict(swept)},
        "complete": swept.complete,
        "combinations": sweep.grid.count,
        "planned": tally.done,
        "ruled_out": tally.done - tally.rows,
        "counts": {status: tally.counts[status] for status in STATUSES},
        "inputs": {axis.name: list(axis.cells) for axis in sweep.grid.axes if worth_naming(axis)},
        "columns": [msgspec.structs.asdict(column) for column in sweep.columns],
        "pareto": {
            "maximise": sweep.objectives.maximise,
            "minimise": sweep.objectives.minimise,
            "points": len(tally.front),
        },
        "where": sweep.where,
        "warnings": sweep.warnings,
    }


def worth_naming(axis: Any) -> bool:
    """Whether the file gives the input a value at all."""
    return bool(axis.cells != (None,))


def verdict(swept: Swept) -> str:
    """How many start, and how many of them nothing beats."""
    tally, count = swept.tally, swept.sweep.grid.count
    starts, rows = tally.counts[STARTS], tally.rows
    parts = [f"{starts:,} of {rows:,} combinations {'starts' if starts == 1 else 'start'}"]
    if tally.counts[LEFT_OUT]:
        parts[0] += f" and hold 'where', {tally.counts[LEFT_OUT]:,} more start but do not"
    if tally.done > rows:
        parts.append(f"{tally.done - rows:,} more ruled out by 'where'")
    if starts:
        points = len(tally.front)
        noun = "point" if points == 1 else "points"
        parts.append(f"{points:,} {noun} on the front of {swept.sweep.objectives.words()}")
    text = " · ".join(parts)
    if swept.complete:
        return text
    return f"interrupted after {tally.done:,} of {count:,} combinations: {text}"


def chosen_rows(swept: Swept, limit: int | None) -> Iterator[list[Cell]]:
    """All rows where they are no more than the limit, else the first so many of the front."""
    if limit is None or swept.tally.rows <= limit:
        yield from swept.rows()
        return
    place = len(swept.sweep.columns) - 2
    left = limit
    for row in swept.rows():
        if not left:
            return
        if row[place]:
            left -= 1
            yield row


def json_pieces(swept: Swept, limit: int | None) -> Iterator[str]:
    """One JSON document, keys sorted, a row a line."""
    report = {**sweep_report(swept), "rows": []}
    whole = msgspec.json.format(msgspec.json.encode(report, order="sorted"), indent=2).decode()
    before, _, after = whole.partition(ROWS)
    names = [column.name for column in swept.sweep.columns]
    yield before + ROWS[:-1]
    mark = "\n    "
    for row in chosen_rows(swept, limit):
        cells = dict(zip(names, row, strict=True))
        yield mark + msgspec.json.encode(cells, order="sorted").decode()
        mark = ",\n    "
    yield ("]" if mark == "\n    " else "\n  ]") + after + "\n"


def write_json(swept: Swept, path: Path) -> None:
    """Every row, and the report."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json_pieces(swept, None))


def write_csv(swept: Swept, path: Path) -> None:
    """A header and every row; an empty cell is a null."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([column.name for column in swept.sweep.columns])
        writer.writerows([plain(cell) for cell in row] for row in swept.rows())


def plain(cell: Cell) -> Cell:
    """A cell for CSV: whole numbers without a fraction, flags in small letters."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell
