"""Where along a row of values a test starts or stops holding."""

from __future__ import annotations

from collections.abc import Callable, Iterable

LONG = 1024  # rows that are looked at by powers, not at even distances

Test = Callable[[int], bool]


def first_holding(count: int, holds: Test, *, points: int, marks: Iterable[int] = ()) -> int | None:
    """The lowest index below `count` at which the test holds.

    Up to `points` indices are all tried. Beyond, that many samples and the `marks` are, and the
    place where the first of them starts to hold is found by bisection.
    """
    below = -1
    for index in samples(count, points, marks):
        if holds(index):
            return bisected(below, index, holds)
        below = index
    return None


def last_holding(count: int, holds: Test, *, points: int, marks: Iterable[int] = ()) -> int | None:
    """The highest index at which the test holds, found likewise from above."""
    above = count
    for index in reversed(samples(count, points, marks)):
        if holds(index):
            return bisected(above, index, holds)
        above = index
    return None


def edge_holding(
    count: int, holds: Test, *, roomy_high: bool, tight: bool, points: int
) -> int | None:
    """An end of the stretch that holds nearest to the roomy end, for tests that are costly and not monotone.

    Samples are tried from the roomy end on; the stretch ends at the first that fails. `tight` asks
    for its far end.
    """
    order = samples(count, points) if count > LONG else spread(count, points)
    if roomy_high:
        order.reverse()
    inside = next((place for place, index in enumerate(order) if holds(index)), None)
    if inside is None:
        return None
    if not tight:
        return order[0] if not inside else bisected(order[inside - 1], order[inside], holds)
    while inside + 1 < len(order) and holds(order[inside + 1]):
        inside += 1
    if inside + 1 == len(order):
        return order[inside]
    return bisected(order[inside + 1], order[inside], holds)


def samples(count: int, points: int, marks: Iterable[int] = ()) -> list[int]:
    """All indices where they are few, else some that grow like powers, with both ends."""
    if count <= points:
        return list(range(count))
    grown = (round((count - 1) ** (step / (points - 1))) for step in range(points))
    chosen = {0, count - 1, *grown, *(mark for mark in marks if 0 <= mark < count)}
    return sorted(chosen)


def spread(count: int, points: int) -> list[int]:
    """All indices where they are few, else some at even distances, with both ends."""
    if count <= points:
        return list(range(count))
    return [round(step * (count - 1) / (points - 1)) for step in range(points)]


def bisected(outside: int, inside: int, holds: Test) -> int:
    """The index nearest to `outside` that holds, between one that does not and one that does."""
    while abs(inside - outside) > 1:
        middle = (inside + outside) // 2
        if holds(middle):
            inside = middle
        else:
            outside = middle
    return inside
