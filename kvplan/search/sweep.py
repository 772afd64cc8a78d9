"""A sweep from its first row to its last: workers plan, the journal keeps, the front is known at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing

import msgspec

from kvplan.search.kinds import Cell
from kvplan.search.pareto import Vector, front
from kvplan.search.resume import Chunk, Journal, decode_chunk
from kvplan.search.sweep_plan import STARTS, SweepPlan
from kvplan.search.workers import Workers, spans_of


class Tally(msgspec.Struct):
    """What the rows so far come to."""

    done: int = 0  # combinations
    counts: Counter[str] = msgspec.field(default_factory=Counter)  # rows by status
    front: list[Vector] = msgspec.field(default_factory=list)

    @property
    def rows(self) -> int:
        return self.counts.total()


class Swept(msgspec.Struct, frozen=True):
    """The rows of a sweep, all of them or those until an interruption."""

    sweep: SweepPlan
    journal: Journal
    tally: Tally

    @property
    def complete(self) -> bool:
        return self.tally.done == self.sweep.grid.count

    def rows(self) -> Iterator[list[Cell]]:
        """Every row in the order of the grid, with its place on the front."""
        best = set(self.tally.front)
        reader = Reader(self.sweep)
        for chunk in self.journal.chunks():
            for row in chunk.rows:
                vector = reader.vector(row)
                yield [*row[:-1], vector is not None and vector in best, row[-1]]


class Reader:
    """Where a planned row has its status and its objectives."""

    def __init__(self, sweep: SweepPlan) -> None:
        names = [column.name for column in sweep.planned_columns]
        self.objectives = sweep.objectives
        self.status = len(sweep.inputs)
        self.places = [names.index(name) for name in sweep.objectives.names]

    def vector(self, row: list[Cell]) -> Vector | None:
        """The row's objectives; None where it does not start."""
        if row[self.status] != STARTS:
            return None
        return self.objectives.vector([row[place] for place in self.places])


def run_sweep(
    sweep: SweepPlan,
    workers: Workers,
    jobs: int,
    journal: Journal,
    progress: Callable[[Tally], None],
    stop: Callable[[], bool] = lambda: False,
) -> Swept:
    """Plan what the journal does not have yet; `stop` ends it early with the rows that are there."""
    reader, tally = Reader(sweep), Tally()
    for chunk in journal.chunks():
        count(tally, reader, chunk)
    spans = spans_of(journal.stop, sweep.grid.count, jobs)
    with closing(workers.chunks(sweep, spans)) as lines:
        for line in lines:
            chunk = decode_chunk(line)
            journal.append(line, chunk.stop)
            count(tally, reader, chunk)
            progress(tally)
            if stop():
                break
    return Swept(sweep, journal, tally)


def count(tally: Tally, reader: Reader, chunk: Chunk) -> None:
    """Add a chunk's rows to the tally."""
    tally.done = chunk.stop
    tally.counts.update(str(row[reader.status]) for row in chunk.rows)
    vectors = {vector for row in chunk.rows if (vector := reader.vector(row)) is not None}
    tally.front = front((*tally.front, *vectors))
