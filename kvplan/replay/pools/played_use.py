"""How full each pool was after each operation that was played."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from kvplan.replay.gauges import FULL, SLIDING, STATES, PoolUse
from kvplan.replay.pools.watched import WatchedMemory
from kvplan.replay.server import Server


class Level:
    """One pool: `free` says what is free now, at first all of it. Used is all that is held."""

    def __init__(self, name: str, unit: str, free: Callable[[], int]) -> None:
        self._name = name
        self._unit = unit
        self._free = free
        self._capacity = free()
        self._peak = self._peak_operation = 0
        self._seen: Counter[int] = Counter()  # used -> after how many operations

    def look(self, number: int) -> None:
        """Operation `number`, from 1, is done."""
        used = self._capacity - self._free()
        self._seen[used] += 1
        if used > self._peak:
            self._peak, self._peak_operation = used, number - 1

    def use(self) -> PoolUse:
        """What was seen; operations have no times, so each counts once."""
        p50, p95, p99 = (self._percentile(percent) for percent in (50, 95, 99))
        return PoolUse(
            name=self._name,
            unit=self._unit,
            capacity=self._capacity,
            peak=self._peak,
            peak_ns=0,
            peak_step=self._peak_operation,
            p50=p50,
            p95=p95,
            p99=p99,
        )

    def _percentile(self, percent: int) -> int:
        wanted, seen = self._seen.total() * percent, 0
        for used in sorted(self._seen):
            seen += self._seen[used]
            if seen * 100 >= wanted:
                return used
        return 0


def levels_of(server: Server, memory: WatchedMemory) -> tuple[Level, ...]:
    """The pools that a server has, each side of two by itself."""
    if server.sliding is None:
        levels = [Level("KV", "tokens", lambda: memory.available)]
    else:
        levels = [
            Level(FULL, "tokens", lambda: memory.full_available),
            Level(SLIDING, "tokens", lambda: memory.sliding_available),
        ]
    if server.states is not None:
        levels.append(Level(STATES, "slots", lambda: memory.available_states))
    return (*levels, Level("request rows", "rows", lambda: memory.free_rows))
