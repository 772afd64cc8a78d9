"""The grid of a sweep: every combination of its axes has one index, the last axis runs fastest."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from kvplan.errors import InputError
from kvplan.search.axis import Axis

MAX_COMBINATIONS = 10_000_000


class Grid(msgspec.Struct, frozen=True):
    """All combinations of some axes, in order."""

    axes: tuple[Axis, ...]

    @property
    def count(self) -> int:
        return math.prod(len(axis.values) for axis in self.axes)

    def combinations(self, start: int, stop: int) -> Iterator[tuple[int, ...]]:
        """The positions on every axis of the combinations from start to before stop."""
        lengths = [len(axis.values) for axis in self.axes]
        digits = self.digits(start)
        for _ in range(start, stop):
            yield tuple(digits)
            place = len(digits) - 1
            while place >= 0 and digits[place] == lengths[place] - 1:
                digits[place] = 0
                place -= 1
            if place >= 0:
                digits[place] += 1

    def digits(self, index: int) -> list[int]:
        """The positions on every axis of one combination."""
        digits = []
        for axis in reversed(self.axes):
            index, digit = divmod(index, len(axis.values))
            digits.append(digit)
        return digits[::-1]

    def values(self, digits: tuple[int, ...]) -> dict[str, Any]:
        """The values of one combination, by the names of the axes."""
        return {
            axis.name: axis.values[digit] for axis, digit in zip(self.axes, digits, strict=True)
        }


def check_count(grid: Grid, where: str) -> None:
    """Refuse what would never end."""
    if grid.count > MAX_COMBINATIONS:
        varying = " × ".join(f"{len(axis.values):,}" for axis in grid.axes if axis.varies)
        raise InputError(
            f"the grid has {grid.count:,} combinations ({varying}),"
            f" at most {MAX_COMBINATIONS:,} are planned",
            where=where,
            hint="sweep fewer values, or split the file",
        )
