"""A replay over time in a bounded number of points: occupancy, queue, waste."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kvplan.replay.gauges import SLIDING, STATES, Gauges
from kvplan.replay.replay import Replay, Turn
from kvplan.replay.sequence import Sequence
from kvplan.units import ceil_page

MAX_POINTS = 1200
FIRST_INTERVAL_NS = 10_000_000


class Point(msgspec.Struct):
    """An interval of time: the most used, running and waiting in it; the rest as it began.

    Its last step ended at `end_ns`; up to the next point nothing ran from there on.
    `used` and what was `cached` beside it are tokens of the KV pool (the full side), `sliding` of
    the sliding side, `states` slots of recurrent state.
    """

    t_ns: int
    end_ns: int
    used: int
    cached: int
    running: int
    waiting: int
    waste: int
    sliding: int
    states: int
    evicted: int


class Timeline:
    """Points at even intervals; when there are too many, two become one."""

    def __init__(self, replay: Replay, gauges: Gauges, max_points: int = MAX_POINTS) -> None:
        """`gauges` see each turn before."""
        self.points: list[Point] = []
        self._replay = replay
        self._pools = {gauge.name: gauge for gauge in gauges.gauges}
        self._kv = gauges.gauges[0]
        self._max_points = max_points
        self._interval_ns = FIRST_INTERVAL_NS
        self._until_ns = 0  # where the interval of the latest point ends
        self._running = replay.scheduler.running
        self._waiting = replay.scheduler.waiting

    def see(self, turn: Turn) -> None:
        """Take in the state in which a turn ended."""
        if turn.start_ns >= self._until_ns:
            self._open(turn)
            return
        point, used = self.points[-1], self._kv.used
        point.end_ns = turn.start_ns + turn.duration_ns
        if used > point.used:
            point.used, point.cached = used, self._replay.store.cache.evictable
        num_running = len(self._running.sequences)
        if num_running > point.running:
            point.running = num_running
        if (waiting := self._waiting.requests) and len(waiting) > point.waiting:
            point.waiting = len(waiting)

    def _open(self, turn: Turn) -> None:
        now_ns = turn.start_ns
        store, running = self._replay.store, self._running.sequences
        self._until_ns = self._end_of(now_ns)
        self.points.append(
            Point(
                t_ns=now_ns,
                end_ns=now_ns + turn.duration_ns,
                used=self._kv.used,
                cached=store.cache.evictable,
                running=len(running),
                waiting=len(self._waiting.requests),
                waste=waste(running, store.page_size),
                sliding=self._used(SLIDING),
                states=self._used(STATES),
                evicted=store.cache.evicted,
            )
        )
        if len(self.points) > self._max_points:
            self._thin()

    def _end_of(self, t_ns: int) -> int:
        """Where the interval that a time lies in ends."""
        return (t_ns // self._interval_ns + 1) * self._interval_ns

    def _used(self, name: str) -> int:
        """What is used of a pool; nothing of one that this server has not."""
        return self._pools[name].used if name in self._pools else 0

    def _thin(self) -> None:
        """Double the interval: points that now share one become one."""
        self._interval_ns *= 2
        self._until_ns = self._end_of(self.points[-1].t_ns)
        thinned: list[Point] = []
        for point in self.points:
            same = thinned and (
                thinned[-1].t_ns // self._interval_ns == point.t_ns // self._interval_ns
            )
            if same:
                thinned[-1] = joined(thinned[-1], point)
            else:
                thinned.append(point)
        self.points = thinned


def joined(first: Point, second: Point) -> Point:
    """Two neighbours as one."""
    fuller = second if second.used > first.used else first
    return msgspec.structs.replace(
        first,
        end_ns=second.end_ns,
        used=fuller.used,
        cached=fuller.cached,
        running=max(first.running, second.running),
        waiting=max(first.waiting, second.waiting),
        sliding=max(first.sliding, second.sliding),
        states=max(first.states, second.states),
    )


def waste(sequences: Iterable[Sequence], page_size: int) -> int:
    """Tokens of the last pages of running requests that hold nothing."""
    if page_size == 1:
        return 0
    return sum([ceil_page(each.committed(), page_size) - each.committed() for each in sequences])
