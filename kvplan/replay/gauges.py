"""How full each pool is while a replay runs: peaks and shares of the time."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kvplan.replay.replay import Replay, Turn
from kvplan.replay.sliding_store import SlidingStore
from kvplan.replay.state_store import StateStore

FULL, SLIDING = "full KV", "sliding KV"  # the sides of two pools
STATES = "recurrent states"
BINS = 1000  # percentiles are told to a thousandth of the pool


class PoolUse(msgspec.Struct, frozen=True, kw_only=True):
    """One pool over a replay. Percentiles are of the time, rounded up to a thousandth of the pool.

    Used is what is neither free nor could be by evicting.
    """

    name: str
    unit: str
    capacity: int
    peak: int
    peak_ns: int
    peak_step: int
    p50: int
    p95: int
    p99: int

    @property
    def share(self) -> float:
        """The peak as a share of the pool."""
        return self.peak / self.capacity if self.capacity else 0.0


class Gauge:
    """One pool; `bins` hold the time that each share of it was left, in ns by thousandths."""

    def __init__(self, name: str, unit: str, capacity: int) -> None:
        self.name = name
        self.unit = unit
        self.capacity = capacity
        self.grows = unit == "tokens"  # with every decode step
        self.used = self.peak = self.peak_ns = self.peak_step = 0
        self.bins = [0] * (BINS + 1)

    def use(self) -> PoolUse:
        """What was seen so far."""
        p50, p95, p99 = (self._percentile(percent) for percent in (50, 95, 99))
        return PoolUse(
            name=self.name,
            unit=self.unit,
            capacity=self.capacity,
            peak=self.peak,
            peak_ns=self.peak_ns,
            peak_step=self.peak_step,
            p50=p50,
            p95=p95,
            p99=p99,
        )

    def fall(self, first: int, last: int, duration_ns: int) -> None:
        """Count a time in which what is left fell evenly from one bin to a lower one."""
        share, rest = divmod(duration_ns, first - last + 1)
        for position in range(last, first + 1):
            self.bins[position] += share
        self.bins[last] += rest

    def _percentile(self, percent: int) -> int:
        wanted, seen = sum(self.bins) * percent, 0
        for position, duration in enumerate(reversed(self.bins)):
            seen += duration
            if seen * 100 >= wanted:
                return min(self.peak, position * self.capacity // BINS)
        return self.peak


class Gauges:
    """All pools of a replay, and how many steps it took."""

    def __init__(self, replay: Replay) -> None:
        self.num_steps = 0
        self._levels = levels_of(replay)
        self._memory = replay.store.memory
        self._rows = Gauge("request rows", "rows", replay.server.num_rows)
        self.gauges = [*(gauge for gauge, _ in self._levels), self._rows]

    def see(self, turn: Turn) -> None:
        """Take the state in which a turn ended; it counts for as long as the turn took.

        Where steps were taken together, their tokens came evenly over that time.
        """
        self.num_steps += turn.num_steps
        duration, grown = turn.duration_ns, turn.grown
        for gauge, read in self._levels:
            capacity, left = gauge.capacity, read()
            used = gauge.used = capacity - left
            if used > gauge.peak:
                self._mark_peak(gauge, used, turn)
            last = left * BINS // capacity
            if grown and gauge.grows and (first := (left + grown) * BINS // capacity) > last:
                gauge.fall(first, last, duration)
            else:
                gauge.bins[last] += duration
        rows, left = self._rows, self._memory.free_rows
        rows.used = rows.capacity - left
        # new requests had taken theirs before those that finished gave them back
        most = rows.used + len(turn.step.finished)
        if most > rows.peak:
            self._mark_peak(rows, most, turn)
        rows.bins[left * BINS // rows.capacity] += duration

    def _mark_peak(self, gauge: Gauge, used: int, turn: Turn) -> None:
        """The last step of a turn brought it; those taken together are of one duration."""
        num_steps = turn.num_steps
        gauge.peak = used
        gauge.peak_ns = turn.start_ns + turn.duration_ns * (num_steps - 1) // num_steps
        gauge.peak_step = self.num_steps - 1

    def uses(self) -> tuple[PoolUse, ...]:
        """What was seen of each pool so far."""
        return tuple(gauge.use() for gauge in self.gauges)


def levels_of(replay: Replay) -> list[tuple[Gauge, Callable[[], int]]]:
    """The pools that a server has beside the request rows.

    With each comes what says how much of it is free or could be by evicting.
    """
    store, capacity = replay.store, replay.meter.capacity
    if isinstance(store, SlidingStore):
        sliding = store.memory.sliding_available
        return [
            (Gauge(FULL, "tokens", capacity), store.reachable),
            (Gauge(SLIDING, "tokens", sliding), store.reachable_sliding),
        ]
    kv = (Gauge("KV", "tokens", capacity), store.reachable)
    if isinstance(store, StateStore):
        states = Gauge(STATES, "slots", store.pool.num_slots)
        return [kv, (states, store.reachable_states)]
    return [kv]
