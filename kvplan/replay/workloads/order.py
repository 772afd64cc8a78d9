"""Rows in order of arrival in bounded memory: as they come, through a window, or through disk."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from kvplan.errors import TraceError
from kvplan.replay.requests import BlockIds, TokenIds, TokenRuns
from kvplan.replay.workloads.compression import reason_of
from kvplan.replay.workloads.rows import MAX_TIME_NS, Row

# rows held at once; a row with many ids counts as several
MAX_HELD = 200_000
IDS_PER_UNIT = 8
MAX_RUNS = 200
CHECKPOINT_ROWS = 256
PROGRESS_ROWS = 1 << 16


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass over a stream of rows shows of its times.

    `inversions` counts rows earlier than the one before. `window` bounds how many places any row
    must move, from the highest time at every 256th one. `held` is the memory of all rows together,
    in plain rows. `gaps` counts the gaps between different times by powers of two.
    """

    num_rows: int
    first_ns: int
    last_ns: int
    inversions: int
    window: int
    held: int
    gaps: tuple[int, ...]


def survey(rows: Iterable[Row], progress: Callable[[int], None] | None = None) -> Order:
    """Read a stream to its end; `progress` hears the number of rows now and then."""
    num_rows = inversions = window = extra = 0
    first_ns, highest_ns, previous_ns = MAX_TIME_NS, 0, None
    highest_at: list[int] = []
    gaps = [0] * 64
    for row in rows:
        t_ns = row.t_ns
        if t_ns != previous_ns:
            if previous_ns is not None:
                gaps[abs(t_ns - previous_ns).bit_length()] += 1
                inversions += t_ns < previous_ns
            previous_ns = t_ns
        if t_ns >= highest_ns:
            highest_ns = t_ns
        else:
            first_later = bisect_right(highest_at, t_ns) * CHECKPOINT_ROWS
            window = max(window, num_rows - first_later)
        if t_ns < first_ns:
            first_ns = t_ns
        num_rows += 1
        if row.identity is not None:
            extra += weight(row) - 1
        if not num_rows % CHECKPOINT_ROWS:
            highest_at.append(highest_ns)
            if progress is not None and not num_rows % PROGRESS_ROWS:
                progress(num_rows)
    return Order(
        num_rows=num_rows,
        first_ns=first_ns,
        last_ns=highest_ns,
        inversions=inversions,
        window=window,
        held=num_rows + extra,
        gaps=tuple(gaps),
    )


def weight(row: Row) -> int:
    """How many plain rows one row takes the memory of."""
    match row.identity:
        case None:
            return 1
        case BlockIds(ids=ids):
            num_ids = len(ids)
        case TokenIds(prompt=prompt):
            num_ids = len(prompt)
        case TokenRuns(stops=stops):
            num_ids = 2 * len(stops)
    return 1 + num_ids // IDS_PER_UNIT


def in_order(
    rows: Callable[[], Iterator[Row]], order: Order, max_held: int = MAX_HELD
) -> Iterator[Row]:
    """The rows of a surveyed stream, sorted by time, ties as they came."""
    if not order.inversions:
        return rows()
    mean_weight = order.held / order.num_rows
    if 2 * order.window * mean_weight <= max_held:
        return windowed(rows(), order.window)
    return spilled(rows(), max(max_held, order.held // MAX_RUNS))


def arrival(row: Row) -> int:
    return row.t_ns


def windowed(rows: Iterator[Row], window: int) -> Iterator[Row]:
    """Sorted, where no row must move more than `window` places."""
    held: list[Row] = []
    while chunk := list(islice(rows, max(window, CHECKPOINT_ROWS))):
        held += chunk
        held.sort(key=arrival)
        yield from held[:-window]
        held = held[-window:]
    yield from held


def spilled(rows: Iterator[Row], max_held: int) -> Iterator[Row]:
    """Sorted through a temporary folder: sorted runs on disk, then one merge."""
    try:
        with TemporaryDirectory(prefix="kvplan-") as folder:
            runs = [
                written(run, Path(folder) / str(number))
                for number, run in enumerate(sorted_runs(rows, max_held))
            ]
            yield from heapq.merge(*map(read_run, runs), key=arrival)
    except OSError as error:
        raise TraceError(
            f"cannot sort the rows through disk: {reason_of(error)}",
            hint="sort the file by its times, or point TMPDIR to a disk with room",
        ) from None


def sorted_runs(rows: Iterator[Row], max_held: int) -> Iterator[list[Row]]:
    """Parts of a stream that fit into memory, each one sorted."""
    run: list[Row] = []
    held = 0
    for row in rows:
        run.append(row)
        held += weight(row)
        if held >= max_held:
            run.sort(key=arrival)
            yield run
            run, held = [], 0
    run.sort(key=arrival)
    yield run


def written(run: list[Row], path: Path) -> Path:
    encode = msgspec.json.Encoder().encode
    with path.open("wb") as file:
        file.writelines(encode(row) + b"\n" for row in run)
    return path


def read_run(path: Path) -> Iterator[Row]:
    decode = msgspec.json.Decoder(Row).decode
    with path.open("rb") as file:
        for line in file:
            yield decode(line)
