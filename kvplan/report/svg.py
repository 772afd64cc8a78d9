"""The occupancy of a recorded state as a picture: one square a page, or a few pages, in SVG."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import groupby

from kvplan.id_runs import num_ids
from kvplan.report.occupancy import PageClass, PoolMap, pool_maps
from kvplan.state.recorded import Recorded

COLUMNS = 64
MOST_ROWS = 64
CELL = 12  # pixels of a cell, its gap included
GAP = 1
MARGIN = 16
LABELS = 88  # pixels left of the grid
RIGHT = MARGIN + LABELS + COLUMNS * CELL
WIDTH = RIGHT + MARGIN
LINE = 20
LETTER = 7  # pixels of one, more or less
HEADING_LETTER = 8
COLORS = {
    PageClass.PADDING: "#4a4f57",
    PageClass.USED: "#2166ac",
    PageClass.SHARED: "#7b5ea7",
    PageClass.CACHED: "#e08214",
    PageClass.FREE: "#e3e7ec",
    PageClass.STAGED: "#b7c4d1",
    PageClass.LOST: "#c51b3a",
}
DOT = " · "
STYLE = "text{font:12px system-ui,sans-serif;fill:#1d2126}.h{font-weight:600}.n{fill:#6a7079}"


def occupancy_svg(recorded: Recorded) -> str:
    """A self-contained picture of every pool; the same text for the same state."""
    parts: list[str] = []
    bottom = MARGIN
    for each in pool_maps(recorded):
        shapes, bottom = pool_shapes(each, bottom)
        parts += shapes
    step = "" if recorded.state.step is None else f" at step {recorded.state.step:,}"
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{bottom}"'
        f' viewBox="0 0 {WIDTH} {bottom}" role="img">\n'
        f"<title>{escape(f'Occupancy of the pools{step}')}</title>\n"
        f"<style>{STYLE}</style>\n"
        f'<rect width="{WIDTH}" height="{bottom}" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def pool_shapes(pool: PoolMap, top: int) -> tuple[list[str], int]:
    """Heading, legend and grid of one pool from a height down, and where it ends."""
    per_cell, cells = pool.cells(COLUMNS * MOST_ROWS)
    shapes = []
    for line in heading(pool, per_cell):
        top += LINE
        shapes.append(text(MARGIN, top, line, "h"))
    for line_of_legend in legend(pool):
        top += LINE
        shapes += legend_shapes(line_of_legend, top)
    top += LINE // 2
    for row in range(0, len(cells), COLUMNS):
        shapes.append(text(MARGIN, top + CELL - 2, f"{row * per_cell:,}", "n"))
        shapes += row_shapes(cells[row : row + COLUMNS], row, per_cell, len(pool.codes), top)
        top += CELL
    return shapes, top + MARGIN


def row_shapes(
    cells: list[PageClass], first_cell: int, per_cell: int, num_codes: int, top: int
) -> Iterator[str]:
    """One rectangle for cells of a class that stand side by side."""
    column = 0
    for what, group in groupby(cells):
        count = len(list(group))
        first = (first_cell + column) * per_cell
        last = min((first_cell + column + count) * per_cell, num_codes) - 1
        pages = f"pages {first:,}–{last:,}" if last > first else f"page {first:,}"
        yield (
            f'<rect x="{MARGIN + LABELS + column * CELL}" y="{top}" width="{count * CELL - GAP}"'
            f' height="{CELL - GAP}" fill="{COLORS[what]}"><title>{pages}: {what}</title></rect>'
        )
        column += count


def heading(pool: PoolMap, per_cell: int) -> Iterator[str]:
    """Which pool, how full, and how torn its free pages are; in lines that fit."""
    free = pool.free_runs()
    longest = max((count for _, count in free), default=0)
    share = pool.held_pages / pool.num_pages
    unit = "slot" if pool.name == "state" else "page"
    words = [
        f"{pool.name}: {pool.held_pages:,} of {pool.num_pages:,} {unit}s held ({share:.1%})",
        f"{num_ids(free):,} free in {len(free):,} run{'s' * (len(free) != 1)}, the longest {longest:,}",
    ]
    words += [f"{per_cell:,} {unit}s a square"] if per_cell > 1 else []
    widths = [HEADING_LETTER * (len(each) + len(DOT)) for each in words]
    for first, end in filled_lines(widths):
        yield DOT.join(words[first:end])


def legend(pool: PoolMap) -> Iterator[list[tuple[PageClass, str]]]:
    """Each class that occurs, with its pages; in lines that fit."""
    counts = [(what, pool.count(what)) for what in PageClass]
    labels = [(what, f"{what} {count:,}") for what, count in counts if count]
    for first, end in filled_lines([label_width(label) for _, label in labels]):
        yield labels[first:end]


def legend_shapes(labels: list[tuple[PageClass, str]], baseline: int) -> Iterator[str]:
    """One line of a legend: a square of the class and what it says."""
    left = MARGIN
    for what, label in labels:
        yield (
            f'<rect x="{left}" y="{baseline - CELL + GAP}" width="{CELL - GAP}"'
            f' height="{CELL - GAP}" fill="{COLORS[what]}"/>'
        )
        yield text(left + CELL + 4, baseline, label)
        left += label_width(label)


def label_width(label: str) -> int:
    """Pixels of one entry of a legend."""
    return CELL + LINE + LETTER * len(label)


def filled_lines(widths: list[int]) -> Iterator[tuple[int, int]]:
    """First and end of what fits into each line, in pixels of each."""
    first, taken = 0, 0
    for index, width in enumerate(widths):
        if taken and taken + width > RIGHT - MARGIN:
            yield first, index
            first, taken = index, 0
        taken += width
    yield first, len(widths)


def text(left: int, baseline: int, words: str, kind: str = "") -> str:
    """One line of text."""
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{left}" y="{baseline}"{named}>{escape(words)}</text>'
