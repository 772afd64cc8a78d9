"""How far a sweep is, on one line of a terminal's stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kvplan.search.sweep import Tally
from kvplan.search.sweep_plan import STARTS, SweepPlan

REFRESH_S = 0.1
CLEAR_LINE = "\r\x1b[K"


@contextmanager
def progress(plan: SweepPlan, *, hidden: bool) -> Iterator[Callable[[Tally], None]]:
    """A call for each finished chunk; silent where stderr is no terminal."""
    if hidden or not sys.stderr.isatty():
        yield silent
        return
    line = Line(plan.grid.count)
    try:
        yield line.show
    finally:
        print(CLEAR_LINE, end="", file=sys.stderr, flush=True)


def silent(_: Tally) -> None:
    """Nothing to show."""


class Line:
    """One line that is written over."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.began: tuple[float, int] | None = None
        self.next = 0.0

    def show(self, tally: Tally) -> None:
        now = time.monotonic()
        if self.began is None:
            self.began = (now, tally.done)
        if now >= self.next:
            self.next = now + REFRESH_S
            text = words(tally, self.total, now - self.began[0], tally.done - self.began[1])
            print(CLEAR_LINE + text, end="", file=sys.stderr, flush=True)


def words(tally: Tally, total: int, elapsed_s: float, done: int) -> str:
    """`12,000 of 100,000 · 8,200 start · 9,100 a second · 10 s left`."""
    text = f"{tally.done:,} of {total:,} · {tally.counts[STARTS]:,} start"
    if done and elapsed_s:
        rate = done / elapsed_s
        text += f" · {rate:,.0f} a second · {(total - tally.done) / rate:,.0f} s left"
    return text
