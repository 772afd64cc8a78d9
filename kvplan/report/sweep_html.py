"""A sweep as one HTML page that carries its rows, chart and scripts: nothing is fetched."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import msgspec

from kvplan.report.sweep import sweep_report
from kvplan.search.kinds import Cell
from kvplan.search.sweep import Swept

MAX_ROWS = 20_000
MAX_FRONT_ROWS = 5_000
PLACE = "__REPORT__"


def write_html(swept: Swept, path: Path) -> None:
    """The page of a sweep; of more than 20,000 rows it has the front and evenly spaced others."""
    page = files("kvplan").joinpath("data", "sweep.html").read_text(encoding="utf-8")
    report = {**sweep_report(swept), "num_rows": swept.tally.rows, "rows": page_rows(swept)}
    data = msgspec.json.encode(report, order="sorted").decode()
    # inside a script element nothing but a closing tag or a comment has a meaning
    path.write_text(page.replace(PLACE, data.replace("<", "\\u003c"), 1), encoding="utf-8")


def page_rows(swept: Swept) -> list[list[Cell]]:
    """All rows, or the front and every so many-th of the others."""
    count = swept.tally.rows
    if count <= MAX_ROWS:
        return list(swept.rows())
    step = -(-count // (MAX_ROWS - MAX_FRONT_ROWS))
    place = len(swept.sweep.columns) - 2
    kept: list[list[Cell]] = []
    of_front = 0
    for index, row in enumerate(swept.rows()):
        of_front += bool(row[place])
        if index % step == 0 or (row[place] and of_front <= MAX_FRONT_ROWS):
            kept.append(row)
    return kept
