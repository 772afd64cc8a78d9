"""Which requests have something due once each of them got so many tokens."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
NOTHING: tuple[Any, ...] = ()


class Calendar(Generic[Item]):
    """Items by tick. Ticks are taken out in order."""

    def __init__(self) -> None:
        self._items: dict[int, list[Item]] = {}
        self._ticks: list[int] = []

    def add(self, tick: int, item: Item) -> None:
        if tick in self._items:
            self._items[tick].append(item)
        else:
            self._items[tick] = [item]
            heapq.heappush(self._ticks, tick)

    def remove(self, tick: int, item: Item) -> None:
        self._items[tick].remove(item)

    def at(self, tick: int) -> Sequence[Item]:
        """What is due at a tick; it stays."""
        return self._items.get(tick, NOTHING)

    def take(self, tick: int) -> list[Item]:
        """What is due by a tick, taken out."""
        due: list[Item] = []
        ticks = self._ticks
        while ticks and ticks[0] <= tick:
            due += self._items.pop(heapq.heappop(ticks))
        return due

    def next_tick(self) -> int | None:
        """The first tick at which something is due."""
        ticks, items = self._ticks, self._items
        while ticks and not items[ticks[0]]:
            del items[heapq.heappop(ticks)]
        return ticks[0] if ticks else None
