"""What each page of a recorded state is: used, shared, cached, free or lost; and how torn the free ones are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from kvplan.id_runs import num_ids
from kvplan.state.checks import NOBODY
from kvplan.state.ownership import CACHED, OWNED, SHARED
from kvplan.state.recorded import HeldRow, PagedPool, Recorded, Run
from kvplan.units import ceil_div


class PageClass(StrEnum):
    """What a page is. A page with slots of a request alone is used, whatever else is in it."""

    PADDING = "padding"
    USED = "used"  # by one request
    SHARED = "shared"  # cached, and in the row of a request
    CACHED = "cached"  # in the prefix cache alone: free to evict
    FREE = "free"
    STAGED = "staged"  # free, and waiting to be sorted into the list
    LOST = "lost"  # nobody holds it and it is not free


CODES = dict(zip(PageClass, (b"p", b"u", b"s", b"c", b"f", b"g", b"x"), strict=True))
CLASSES = {code: each for each, code in CODES.items()}
# the code of each mark; pages that nobody holds are lost until a free list has them
OF_MARKS = {
    NOBODY: PageClass.LOST,
    CACHED: PageClass.CACHED,
    SHARED: PageClass.SHARED,
    OWNED: PageClass.USED,
}
TRANSLATION = bytes.maketrans(bytes(OF_MARKS), b"".join(CODES[each] for each in OF_MARKS.values()))
FREE_PAGES = re.compile(rb"[fg]+")
# a letter's own repeat costs no memory, a back reference some for each page
SAME = re.compile(b"|".join(code + b"+" for code in CLASSES))


class PoolMap(NamedTuple):
    """One pool of a recorded state: a code for each page, page 0 included."""

    name: str
    page_size: int
    codes: bytes
    held_tokens: int  # slots that a request or the cache has

    def count(self, *classes: PageClass) -> int:
        """Pages of these classes."""
        return sum(self.codes.count(CODES[each]) for each in classes)

    @property
    def num_pages(self) -> int:
        """Pages that can be handed out."""
        return len(self.codes) - 1

    @property
    def held_pages(self) -> int:
        """Pages that a request or the cache has."""
        return self.count(PageClass.USED, PageClass.SHARED, PageClass.CACHED)

    @property
    def wasted_tokens(self) -> int:
        """Slots of held pages that no token has: the rest of each last page."""
        return self.held_pages * self.page_size - self.held_tokens

    def free_runs(self) -> list[Run]:
        """Free pages that follow one by one: (first page, how many)."""
        spans = (found.span() for found in FREE_PAGES.finditer(self.codes))
        return [(first, end - first) for first, end in spans]

    def runs(self) -> Iterator[tuple[PageClass, int, int]]:
        """Pages of one class that follow one by one: (class, first page, how many)."""
        for found in SAME.finditer(self.codes):
            first, end = found.span()
            yield CLASSES[self.codes[first : first + 1]], first, end - first

    def cells(self, most: int) -> tuple[int, list[PageClass]]:
        """At most so many cells: pages a cell, and what most pages of each are; one lost page tells."""
        per_cell = max(1, ceil_div(len(self.codes), most))
        chunks = (self.codes[at : at + per_cell] for at in range(0, len(self.codes), per_cell))
        return per_cell, [cell_class(chunk) for chunk in chunks]


def cell_class(codes: bytes) -> PageClass:
    """What a cell of some pages is shown as."""
    if CODES[PageClass.LOST] in codes:
        return PageClass.LOST
    return max(PageClass, key=lambda each: codes.count(CODES[each]))


def pool_maps(recorded: Recorded) -> list[PoolMap]:
    """The only KV pool, or the full and the sliding one; then the state slots."""
    state, owners = recorded.state, recorded.owners
    name = "kv" if state.sliding is None else "full"
    maps = [pool_map(name, owners.kv, state.page_size, state.kv)]
    if state.sliding is not None:
        maps.append(pool_map("sliding", owners.sliding, state.page_size, state.sliding))
    if state.state is not None:
        slots = PagedPool(tokens=state.state.slots, free_pages=state.state.free)
        maps.append(pool_map("state", owners.state, 1, slots))
    return maps


def pool_map(name: str, marks: bytearray, page_size: int, pool: PagedPool) -> PoolMap:
    """One pool from the marks of its slots and its free list."""
    highest = bytes(marks) if page_size == 1 else page_marks(marks, page_size)
    codes = bytearray(highest.translate(TRANSLATION))
    free_lists = ((pool.free_pages, PageClass.FREE), (pool.staged_pages, PageClass.STAGED))
    for held, what in free_lists:
        for first, count in held:
            codes[first : first + count] = CODES[what] * count
    codes[0:1] = CODES[PageClass.PADDING]
    return PoolMap(name, page_size, bytes(codes), len(marks) - marks.count(NOBODY))


def page_marks(marks: bytearray, page_size: int) -> bytes:
    """The highest mark in each page."""
    return bytes(map(max, zip(*[iter(marks)] * page_size, strict=True)))


def pool_report(each: PoolMap) -> dict[str, Any]:
    """One pool in figures; `map` lists its pages in runs of one class."""
    free = each.free_runs()
    num_free = num_ids(free)
    longest = max((count for _, count in free), default=0)
    return {
        "name": each.name,
        "page_size": each.page_size,
        "pages": {what.value: each.count(what) for what in PageClass} | {"total": each.num_pages},
        "tokens": {
            "capacity": each.num_pages * each.page_size,
            "held": each.held_tokens,
            "wasted": each.wasted_tokens,
        },
        "free": {
            "pages": num_free,
            "runs": len(free),
            "longest_run_pages": longest,
            "fragmentation": round(1 - longest / num_free, 4) if num_free else 0.0,
        },
        "map": [[what.value, first, count] for what, first, count in each.runs()],
    }


def request_report(request: HeldRow, page_size: int) -> dict[str, Any]:
    """What one request holds."""
    pages: set[int] = set()
    for first, count in request.slots:
        pages.update(range(first // page_size, (first + count - 1) // page_size + 1))
    allocated = num_ids(request.slots)
    return {
        "rid": request.rid,
        "row": request.row,
        "seq_len": request.seq_len,
        "cached_len": request.cached_len,
        "reserved_tokens": allocated - request.seq_len,
        "pages": len(pages),
        "wasted_tokens": len(pages) * page_size - allocated,
        "state_slot": request.state_slot,
        "tracking_slots": list(request.tracking_slots),
    }


def occupancy_report(recorded: Recorded) -> dict[str, Any]:
    """Every pool and request of a recorded state in figures."""
    state = recorded.state
    pools = [pool_report(each) for each in pool_maps(recorded)]
    requests = [request_report(each, state.page_size) for each in state.requests]
    rows = state.rows - 1
    return {
        "step": state.step,
        "pools": pools,
        "rows": {"total": rows, "held": len(requests), "free": rows - len(requests)},
        "requests": requests,
        "lost_pages": sum(pool["pages"][PageClass.LOST.value] for pool in pools),
    }


def reported_map(report: dict[str, Any]) -> PoolMap:
    """The map of a pool that was reported."""
    codes = b"".join(CODES[PageClass(what)] * count for what, _, count in report["map"])
    return PoolMap(report["name"], report["page_size"], codes, report["tokens"]["held"])
