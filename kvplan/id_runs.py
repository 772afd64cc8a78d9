"""Runs of ids that follow one by one: first and count, so that long lists stay short."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def runs(ids: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Ids in their order as (first, count) of those that follow one by one."""
    found: list[list[int]] = []
    for each in ids:
        if found and each == found[-1][0] + found[-1][1]:
            found[-1][1] += 1
        else:
            found.append([each, 1])
    return tuple((first, count) for first, count in found)


def mapped_runs(pairs: Iterable[tuple[int, int]]) -> tuple[tuple[int, int, int], ...]:
    """(full slot, sliding slot) pairs as runs in which both go up by one."""
    found: list[list[int]] = []
    for full, sliding in pairs:
        last = found[-1] if found else (0, 0, 0)
        if found and full == last[0] + last[2] and sliding == last[1] + last[2]:
            found[-1][2] += 1
        else:
            found.append([full, sliding, 1])
    return tuple((full, sliding, count) for full, sliding, count in found)


def ids(held: Iterable[tuple[int, int]]) -> Iterator[int]:
    """The ids of runs, one by one."""
    for first, count in held:
        yield from range(first, first + count)


def num_ids(held: Iterable[tuple[int, int]]) -> int:
    """How many ids some runs have."""
    return sum(count for _, count in held)
