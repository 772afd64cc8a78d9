"""Memory of a replay with onlookers: each hears what was taken, moved and given back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from time import perf_counter_ns
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kvplan.errors import KvplanError
from kvplan.replay.pools.latency import Latencies
from kvplan.replay.pools.memory import PoolMemory
from kvplan.replay.pools.sliding import SlidingPoolMemory
from kvplan.replay.pools.states import StatePoolMemory
from kvplan.replay.sequence import Part
from kvplan.replay.sequence import Sequence as Request
from kvplan.replay.workloads.operations import Side

Ints = NDArray[np.int64]
Kind = Literal["extend", "decode", "reserve"]


class Tenancy(NamedTuple):
    """One request's time in one row: a retracted request has another the next time."""

    number: int  # from 1, never used twice
    name: str  # the request's, with #2 and so on from its second row on
    sequence: Request


class Growth(NamedTuple):
    """New slots of some rows: positions `starts[i] .. stops[i]` each, in that order.

    `slots` are on the host; `device_slots` are the same where they were handed out.
    """

    kind: Kind
    tenancies: list[Tenancy]
    rows: Ints
    numbers: Ints
    starts: Ints
    stops: Ints
    slots: Ints
    device_slots: Tensor

    @property
    def counts(self) -> Ints:
        """New slots of each row."""
        return self.stops - self.starts

    def positions(self) -> Ints:
        """The position of each slot."""
        if self.kind == "decode":
            return self.starts
        counts = self.counts
        before = np.repeat(np.cumsum(counts) - counts, counts)
        return np.arange(len(self.slots)) - before + np.repeat(self.starts, counts)

    def owners(self) -> Ints:
        """The tenancy of each slot by its number."""
        if self.kind == "decode":
            return self.numbers
        return np.repeat(self.numbers, self.counts)


class Watcher:
    """Hears of every change once it has been made; `leaving` and what is freed come before it."""

    def opened(self, tenancy: Tenancy, prefix: list[Tensor]) -> None:
        """A row starts with slots of the prefix cache."""

    def grown(self, growth: Growth) -> None:
        """Rows got new slots."""

    def refused(self, growth: Growth) -> None:
        """Rows were to grow so and the memory refused it; there are no slots."""

    def rewritten(self, tenancy: Tenancy, start: int, slots: Tensor) -> None:
        """A row follows the slots of the prefix cache from a position on."""

    def leaving(self, tenancy: Tenancy) -> None:
        """A finished request is about to give back what it holds."""

    def freed(self, slots: Tensor, side: Side) -> None:
        """Slots go back: `both`, `full` or `sliding` parts of them."""

    def moved(self, kept: Tensor, incoming: Tensor) -> None:
        """The sliding slots of the incoming full slots stand beside the kept ones now."""

    def state_taken(self, slots: Tensor, rid: str | None) -> None:
        """One slot of recurrent state went out to a request."""

    def states_freed(self, slots: Tensor) -> None:
        """Slots of recurrent state are about to go back."""

    def grouped(self, *, opens: bool) -> None:
        """Frees from here on take effect together, or took effect."""

    def closed(self, tenancy: Tenancy) -> None:
        """A row went back."""


class WatchedMemory:
    """A replay's memory over pools that tells its watchers what happens to it."""

    def __init__(self, inner: PoolMemory, watchers: Iterable[Watcher] = ()) -> None:
        self.inner = inner
        self.page_size = inner.page_size
        self.watchers = list(watchers)
        self.latencies = Latencies()
        self.tenancies: dict[int, Tenancy] = {}  # by row
        self._num_tenancies = 0
        self._rows_of: dict[str, int] = {}  # rows that each request had
        self._batch = Batch([], {})
        self._leaving: Request | None = None

    @property
    def available(self) -> int:
        return self.inner.available

    @property
    def free_rows(self) -> int:
        return self.inner.free_rows

    @property
    def full_available(self) -> int:
        return self._sliding().full_available

    @property
    def sliding_available(self) -> int:
        return self._sliding().sliding_available

    @property
    def available_states(self) -> int:
        return self._states().available_states

    def open_row(self, sequence: Request, prefix: Sequence[Tensor]) -> None:
        self.inner.open_row(sequence, prefix)
        self._num_tenancies += 1
        times = self._rows_of[sequence.rid] = self._rows_of.get(sequence.rid, 0) + 1
        name = sequence.rid if times == 1 else f"{sequence.rid}#{times}"
        tenancy = self.tenancies[sequence.row] = Tenancy(self._num_tenancies, name, sequence)
        for watcher in self.watchers:
            watcher.opened(tenancy, list(prefix))

    def close_row(self, sequence: Request) -> None:
        if sequence.finished:
            del self._rows_of[sequence.rid]
        self.inner.close_row(sequence)
        tenancy = self.tenancies.pop(sequence.row)
        for watcher in self.watchers:
            watcher.closed(tenancy)

    def extend(self, parts: Sequence[Part]) -> Tensor:
        start = perf_counter_ns()
        try:
            slots = self.inner.extend(parts)
        except KvplanError:
            self._tell_of_refusal("extend", parts)
            raise
        self.latencies.note("extend", perf_counter_ns() - start, len(slots))
        self._tell_of_parts("extend", parts, slots)
        return slots

    def decode(self, sequences: Collection[Request], num_new_pages: int) -> Tensor:
        start = perf_counter_ns()
        try:
            slots = self.inner.decode(sequences, num_new_pages)
        except KvplanError:
            lens = [each.committed() for each in sequences]
            grown = zip(sequences, lens, strict=True)
            self._tell_of_refusal(
                "decode", [Part(each, stop - 1, stop, is_middle=False) for each, stop in grown]
            )
            raise
        self.latencies.note("decode", perf_counter_ns() - start, len(slots))
        if self.watchers:
            if self._batch.sequences is not sequences:
                self._batch = Batch(sequences, self.tenancies)
            growth = self._batch.grown(slots)
            for watcher in self.watchers:
                watcher.grown(growth)
        return slots

    def reserve(self, sequences: Collection[Request], num_new_pages: int) -> Tensor:
        parts = [Part(each, each.filled, each.allocated(), is_middle=False) for each in sequences]
        start = perf_counter_ns()
        try:
            slots = self.inner.reserve(sequences, num_new_pages)
        except KvplanError:
            self._tell_of_refusal("reserve", parts)
            raise
        self.latencies.note("reserve", perf_counter_ns() - start, len(slots))
        self._tell_of_parts("reserve", parts, slots)
        return slots

    def row_slots(self, sequence: Request, start: int, stop: int) -> Tensor:
        # the first look at a finished request's row comes before anything of it is given back
        if sequence.finished and self._leaving is not sequence:
            self._leaving = sequence
            for watcher in self.watchers:
                watcher.leaving(self.tenancies[sequence.row])
        return self.inner.row_slots(sequence, start, stop)

    def write_row(self, sequence: Request, start: int, slots: Tensor) -> None:
        self.inner.write_row(sequence, start, slots)
        for watcher in self.watchers:
            watcher.rewritten(self.tenancies[sequence.row], start, slots)

    def free(self, slots: Tensor) -> None:
        self._free(slots, "both", self.inner.free)

    def free_full(self, slots: Tensor) -> None:
        self._free(slots, "full", self._sliding().free_full)

    def free_sliding(self, slots: Tensor) -> None:
        self._free(slots, "sliding", self._sliding().free_sliding)

    def move_sliding(self, kept: Tensor, incoming: Tensor) -> None:
        self._sliding().move_sliding(kept, incoming)
        for watcher in self.watchers:
            watcher.moved(kept, incoming)

    def alloc_state(self, rid: str | None) -> Tensor | None:
        slots = self._states().alloc_state(rid)
        if slots is not None:
            for watcher in self.watchers:
                watcher.state_taken(slots, rid)
        return slots

    def free_states(self, slots: Tensor) -> None:
        for watcher in self.watchers:
            watcher.states_freed(slots)
        self._states().free_states(slots)

    def free_group_begin(self) -> None:
        self.inner.free_group_begin()
        for watcher in self.watchers:
            watcher.grouped(opens=True)

    def free_group_end(self) -> None:
        self.inner.free_group_end()
        for watcher in self.watchers:
            watcher.grouped(opens=False)

    def _free(self, slots: Tensor, side: Side, free: Callable[[Tensor], None]) -> None:
        for watcher in self.watchers:
            watcher.freed(slots, side)
        start = perf_counter_ns()
        free(slots)
        self.latencies.note("free", perf_counter_ns() - start, len(slots))

    def _sliding(self) -> SlidingPoolMemory:
        return cast(SlidingPoolMemory, self.inner)

    def _states(self) -> StatePoolMemory:
        return cast(StatePoolMemory, self.inner)

    def _tell_of_parts(self, kind: Kind, parts: Sequence[Part], slots: Tensor) -> None:
        if not self.watchers:
            return
        growth = self._growth(kind, parts, slots)
        for watcher in self.watchers:
            watcher.grown(growth)

    def _tell_of_refusal(self, kind: Kind, parts: Sequence[Part]) -> None:
        growth = self._growth(kind, parts, torch.empty(0, dtype=torch.int64))
        for watcher in self.watchers:
            watcher.refused(growth)

    def _growth(self, kind: Kind, parts: Sequence[Part], slots: Tensor) -> Growth:
        tenancies = [self.tenancies[part.sequence.row] for part in parts]
        return Growth(
            kind=kind,
            tenancies=tenancies,
            rows=ints([part.sequence.row for part in parts]),
            numbers=ints([tenancy.number for tenancy in tenancies]),
            starts=ints([part.prefix_len for part in parts]),
            stops=ints([part.stop for part in parts]),
            slots=on_host(slots),
            device_slots=slots,
        )


class Batch:
    """Tenancies and lengths of a running batch, kept from step to step."""

    def __init__(self, sequences: Collection[Request], tenancies: dict[int, Tenancy]) -> None:
        self.sequences = sequences
        self._tenancies = [tenancies[each.row] for each in sequences]
        self._rows = ints([each.row for each in sequences])
        self._numbers = ints([tenancy.number for tenancy in self._tenancies])
        # committed counts the new token already
        self._stops = ints([each.committed() - 1 for each in sequences])

    def grown(self, slots: Tensor) -> Growth:
        """One token more for each request."""
        starts, self._stops = self._stops, self._stops + 1
        return Growth(
            kind="decode",
            tenancies=self._tenancies,
            rows=self._rows,
            numbers=self._numbers,
            starts=starts,
            stops=self._stops,
            slots=on_host(slots),
            device_slots=slots,
        )


def ints(numbers: list[int]) -> Ints:
    return np.array(numbers, dtype=np.int64)


def first_repeated(values: Ints) -> int | None:
    """Index of the first value that stands before already; None where all differ."""
    _, firsts = np.unique(values, return_index=True)
    again = np.ones(len(values), dtype=bool)
    again[firsts] = False
    return int(again.argmax()) if again.any() else None


def on_host(slots: Tensor) -> Ints:
    """Slots as an array; from a device this waits for it."""
    host: Any = slots.cpu().numpy()
    return cast(Ints, host)
