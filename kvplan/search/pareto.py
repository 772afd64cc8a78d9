"""The Pareto front: rows that no other row beats in one objective without losing in another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from kvplan.search.kinds import Cell

Vector = tuple[float, ...]


class Objectives(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of which more is better, and of which less is."""

    maximise: tuple[str, ...]
    minimise: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.maximise, *self.minimise)

    def vector(self, cells: Sequence[Cell]) -> Vector | None:
        """A row's cells of `names`, turned so that more is better; None where one is empty."""
        numbers = [each for each in cells if isinstance(each, int | float)]
        if len(numbers) < len(cells):
            return None
        wanted = len(self.maximise)
        return (*numbers[:wanted], *(-number for number in numbers[wanted:]))

    def words(self) -> str:
        """`most tokens, fewest gpus`."""
        wanted = [f"most {name}" for name in self.maximise]
        return ", ".join(wanted + [f"least {name}" for name in self.minimise])


def front(vectors: Iterable[Vector]) -> list[Vector]:
    """Vectors that no other is at least as good as everywhere and better somewhere, best first.

    Sorted, whatever beats a vector stands before it: its first number is no less, so only the
    others have to be compared, with the best ones so far.
    """
    found: list[Vector] = []
    tails: list[Vector] = []
    for vector in sorted(set(vectors), reverse=True):
        tail = vector[1:]
        if any(at_least(best, tail) for best in tails):
            continue
        found.append(vector)
        tails = [best for best in tails if not at_least(tail, best)]
        tails.append(tail)
    return found


def at_least(left: Vector, right: Vector) -> bool:
    """Whether left is nowhere less than right."""
    return all(one >= other for one, other in zip(left, right, strict=True))
