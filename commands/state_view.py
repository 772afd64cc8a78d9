"""A recorded state as text: each pool as a map of letters, its figures, and its requests."""

from itertools import groupby
from typing import Any

from kvplan.report.occupancy import PageClass, reported_map
from kvplan.words import printable

from .render import table

MAP_COLUMNS = (64, 32, 16, 8)  # the widest that fits
MAP_ROWS = 16
LABEL = 9  # digits left of a line
SHOWN_REQUESTS = 12
LETTERS = dict(zip(PageClass, "p#%o.,!", strict=True))
STYLES = {
    PageClass.USED: "blue",
    PageClass.SHARED: "magenta",
    PageClass.CACHED: "yellow",
    PageClass.LOST: "bold red",
}


def show_occupancy(occupancy: dict[str, Any], out: Any) -> None:
    """Every pool, then who runs."""
    for pool in occupancy["pools"]:
        show_pool(pool, out)
        out.print()
    show_requests(occupancy, out)


def show_pool(pool: dict[str, Any], out: Any) -> None:
    """A heading, the map, and what the letters mean with their counts."""
    from rich.text import Text

    mapped = reported_map(pool)
    unit = "slots" if pool["name"] == "state" else f"pages of {pool['page_size']:,}"
    tokens, free = pool["tokens"], pool["free"]
    out.print(f"{pool['name']}: {pool['pages']['total']:,} {unit}", style="bold")
    digits = max(LABEL, len(f"{mapped.num_pages:,}"))
    room = out.width - digits - len("   ")
    columns = next((each for each in MAP_COLUMNS if each <= room), MAP_COLUMNS[-1])
    per_cell, cells = mapped.cells(columns * MAP_ROWS)
    for start in range(0, len(cells), columns):
        line = Text(f"  {start * per_cell:>{digits},} ")
        for what, same in groupby(cells[start : start + columns]):
            line.append(LETTERS[what] * len(list(same)), style=STYLES.get(what, ""))
        out.print(line)
    legend = [
        f"{letter} {what} {pool['pages'][what]:,}"
        for what, letter in LETTERS.items()
        if pool["pages"][what]
    ]
    each = f"   (a letter for {per_cell:,} of them)" if per_cell > 1 else ""
    out.print(f"  {'  '.join(legend)}{each}")
    if pool["name"] != "state":
        out.print(
            f"  tokens: {tokens['held']:,} of {tokens['capacity']:,} held,"
            f" {tokens['wasted']:,} more wasted in pages that are not full"
        )
    out.print(
        f"  free: {free['pages']:,} in {free['runs']:,} run{'s' * (free['runs'] != 1)}, the longest"
        f" {free['longest_run_pages']:,} (fragmentation {free['fragmentation']:.1%})"
    )


def show_requests(occupancy: dict[str, Any], out: Any) -> None:
    """The requests that hold most pages."""
    rows, requests = occupancy["rows"], occupancy["requests"]
    step = "" if occupancy["step"] is None else f" at step {occupancy['step']:,}"
    out.print(f"rows: {rows['held']:,} of {rows['total']:,} held{step}", style="bold")
    largest = sorted(requests, key=lambda each: (-each["pages"], each["row"]))[:SHOWN_REQUESTS]
    lines = [
        (
            f"  {printable(each['rid'])}",
            f"{each['row']:,}",
            f"{each['seq_len']:,}",
            f"{each['cached_len']:,}",
            f"{each['pages']:,}",
            f"{each['wasted_tokens'] + each['reserved_tokens']:,}",
        )
        for each in largest
    ]
    if lines:
        headers = ("  request", "row", "tokens", "cached", "pages", "not written")
        out.print(table(headers, lines, right=(1, 2, 3, 4, 5)))
    if len(requests) > len(largest):
        out.print(f"  and {len(requests) - len(largest):,} smaller ones")
