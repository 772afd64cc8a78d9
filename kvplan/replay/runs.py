"""Tokens as runs of consecutive ids: what a long conversation said, in a few numbers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable

from kvplan.replay.requests import TokenRuns

OWN_IDS = 1 << 32  # ids that each conversation has for itself, by position


class Said:
    """What one conversation has said so far; `number`, from 1, tells it from the others.

    What it shares with nobody has ids below 0, one for each position.
    """

    def __init__(self, number: int) -> None:
        self.length = 0
        self._shifts: list[int] = []
        self._stops: list[int] = []
        self._own = -number * OWN_IDS

    def add(self, first: int, length: int) -> None:
        """So many tokens with ids from `first` on."""
        if not length:
            return
        shift = first - self.length
        self.length += length
        if self._shifts and self._shifts[-1] == shift:
            self._stops[-1] = self.length
        else:
            self._shifts.append(shift)
            self._stops.append(self.length)

    def add_own(self, length: int) -> None:
        """So many tokens that nobody else has."""
        self.add(self._own + self.length, length)

    def tokens(self) -> TokenRuns:
        """All of it as a request's identity."""
        return TokenRuns(shifts=self._shifts, stops=self._stops, length=self.length)


class RunKey:
    """A key of runs: what is not known nobody shares.

    Pages and keys are compared at equal positions, so the shifts of runs stand for their tokens.
    """

    __slots__ = ("length", "shifts", "stops")

    def __init__(self, identity: TokenRuns) -> None:
        self.shifts = identity.shifts
        self.stops = identity.stops
        self.length = identity.length

    def page(self, position: int, page_size: int) -> Hashable:
        stop = position + page_size
        if stop > self.length:
            return self
        stops = self.stops
        index = bisect_right(stops, position)
        if stop <= stops[index]:
            return self.shifts[index]
        end = bisect_right(stops, stop - 1)
        return *stops[index:end], *self.shifts[index : end + 1]

    def common(self, other: object, start: int, stop: int) -> int:
        if self is other:
            return stop
        if not isinstance(other, RunKey):
            return start
        stop = max(start, min(stop, self.length, other.length))
        mine, theirs = bisect_right(self.stops, start), bisect_right(other.stops, start)
        while start < stop and self.shifts[mine] == other.shifts[theirs]:
            start = min(self.stops[mine], other.stops[theirs])
            mine += start == self.stops[mine]
            theirs += start == other.stops[theirs]
        return min(start, stop)

    def known(self, start: int, stop: int) -> list[int]:
        """Ids of the tokens `start .. stop`, as far as they are known."""
        ids: list[int] = []
        stop = min(stop, self.length)
        while start < stop:
            index = bisect_right(self.stops, start)
            end = min(stop, self.stops[index])
            ids += range(self.shifts[index] + start, self.shifts[index] + end)
            start = end
        return ids
