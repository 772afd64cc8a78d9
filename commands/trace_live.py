"""The live view of a replay on stderr: progress, occupancy, running and waiting, evictions."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kvplan.replay.meter import Meter
from kvplan.replay.replay import Replay, Turn
from kvplan.replay.run import Observer
from kvplan.report.replay import clock

from .render import console

REFRESH_S = 0.2
TURNS_A_LOOK = 64  # turns between two looks at the clock
BAR_WIDTH = 40


class LiveView:
    """Redraws two lines for the replay that is running, a few times a second."""

    def __init__(self, live: Any) -> None:
        self._live = live
        self._run: Replay | None = None
        self._total: int | None = None
        self._turns = 0
        self._next_s = 0.0

    def attach(self, run: Replay, total: int | None) -> None:
        """Another replay starts."""
        self._run, self._total, self._turns = run, total, 0

    def see(self, turn: Turn) -> None:  # noqa: ARG002
        """Redraw if it is time."""
        self._turns += 1
        if self._turns % TURNS_A_LOOK:
            return
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + REFRESH_S
            assert self._run is not None
            self._live.update(lines(self._run, self._total, self._live.width))


def lines(run: Replay, total: int | None, width: int) -> str:
    """How far a replay is and how full the pool is, then its requests; neither exceeds the width."""
    meter, scheduler, cache = run.meter, run.scheduler, run.store.cache
    capacity = max(1, meter.capacity)
    used = meter.capacity - run.store.reachable()
    left = f"{progress(meter, total)} {clock(run.now_ns)} |"
    right = f"| {used / capacity:4.0%} used"
    bar_width = max(0, min(BAR_WIDTH, width - len(left) - len(right)))
    filled = round(used / capacity * bar_width)
    cached = min(round(cache.evictable / capacity * bar_width), bar_width - filled)
    bar = ("█" * filled + "░" * cached).ljust(bar_width)
    requests = (
        f"{len(scheduler.running):,} running · {len(scheduler.waiting.requests):,} waiting"
        f" · {meter.num_retractions:,} retracted · {cache.evicted:,} evicted"
    )
    return f"{left}{bar}{right}"[:width] + "\n" + f"     {requests}"[:width]


def progress(meter: Meter, total: int | None) -> str:
    """The share of the requests that are done with."""
    if not total:
        return "    "
    done = meter.num_finished + meter.num_aborted + meter.rejections.total()
    return f"{min(1.0, done / total):4.0%}"


@contextmanager
def screen(live: bool | None, *, color: bool) -> Iterator[tuple[Observer, ...]]:
    """Who looks on: a live view on stderr if it is a terminal or asked for, else nobody."""
    if not (sys.stderr.isatty() if live is None else live):
        yield ()
        return
    from rich.live import Live

    with Live(
        "", console=console(color=color, stderr=True), auto_refresh=False, transient=True
    ) as drawn:
        yield (LiveView(Redrawing(drawn)),)


class Redrawing:
    """A rich display that is redrawn only when told to."""

    def __init__(self, drawn: Any) -> None:
        self._drawn = drawn

    @property
    def width(self) -> int:
        """Columns of the terminal."""
        return int(self._drawn.console.width)

    def update(self, text: str) -> None:
        """Draw text in place of the last one."""
        self._drawn.update(text, refresh=True)
