"""The live view of a replay on stderr: progress, occupancy, running and waiting, evictions."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kvplan.replay.replay import Replay, Turn
from kvplan.replay.run import Observer
from kvplan.report.replay import clock

from .render import console

REFRESH_S = 0.2
TURNS_A_LOOK = 64  # turns between two looks at the clock
BAR_WIDTH = 40


class LiveView:
    """Redraws a line for the replay that is running, a few times a second."""

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
            self._live.update(self._line())

    def _line(self) -> str:
        run = self._run
        assert run is not None
        meter, scheduler, cache = run.meter, run.scheduler, run.store.cache
        used = meter.capacity - run.store.available() - cache.evictable
        filled = round(used / meter.capacity * BAR_WIDTH)
        cached = round(cache.evictable / meter.capacity * BAR_WIDTH)
        bar = ("█" * filled + "░" * cached).ljust(BAR_WIDTH)
        done = f"{meter.num_requests / self._total:4.0%}" if self._total else "    "
        return (
            f"{done} {clock(run.now_ns)} |{bar}| {used / meter.capacity:4.0%} used"
            f" · {len(scheduler.running):,} running · {len(scheduler.waiting.requests):,} waiting"
            f" · {meter.num_retractions:,} retracted · {cache.evicted:,} evicted"
        )


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

    def update(self, line: str) -> None:
        """Draw a line in place of the last one."""
        self._drawn.update(line, refresh=True)
