"""Writes what a replay does to its memory as operations by request name."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from kvplan.replay.pools.books import Books
from kvplan.replay.pools.watched import Growth, Tenancy, Watcher
from kvplan.replay.replay import Replay, Turn
from kvplan.replay.workloads.operations import (
    Alloc,
    Decode,
    Extend,
    Follow,
    FreeStates,
    Leave,
    Move,
    Operation,
    Release,
    Reserve,
    Side,
    Spans,
    TakeState,
)


class Recorder(Watcher):
    """Hands each operation to `write` when it is done.

    Slots are named by the request and the positions that they were given to, so the books must
    hear of frees after it. Frees of a group are written when it ends.
    """

    def __init__(self, books: Books, write: Callable[[Operation], None]) -> None:
        self.num_operations = 0
        self._books = books
        self._sink = write
        self._step = 0
        self._grouped: list[tuple[Spans, Side]] | None = None
        self._states: dict[int, int] = {}  # slot -> what it is called
        self._num_states = 0

    def attach(self, run: Replay, total: int | None) -> None:
        """Steps count from 0."""

    def see(self, turn: Turn) -> None:
        """Operations from here on belong to a later step."""
        self._step += turn.num_steps

    def opened(self, tenancy: Tenancy, prefix: list[Tensor]) -> None:
        spans = tuple(span for slots in prefix for span in self._books.spans(slots))
        prefixes = (spans,) if spans else ()
        self._write(Alloc(requests=(tenancy.name,), prefixes=prefixes, step=self._step))

    def grown(self, growth: Growth) -> None:
        names = tuple(tenancy.name for tenancy in growth.tenancies)
        stops = tuple(growth.stops.tolist())
        match growth.kind:
            case "decode":
                self._write(Decode(requests=names, step=self._step))
            case "reserve":
                self._write(Reserve(requests=names, seq_lens=stops, step=self._step))
            case "extend":
                starts = tuple(growth.starts.tolist())
                self._write(
                    Extend(requests=names, prefix_lens=starts, seq_lens=stops, step=self._step)
                )

    def refused(self, growth: Growth) -> None:
        """Played again it fails again."""
        self.grown(growth)

    def rewritten(self, tenancy: Tenancy, start: int, slots: Tensor) -> None:
        spans = self._books.spans(slots)
        # what the request was given itself stands in its row already
        if any(name != tenancy.name for name, _, _ in spans):
            self._write(Follow(request=tenancy.name, start=start, spans=spans, step=self._step))

    def freed(self, slots: Tensor, side: Side) -> None:
        spans = self._books.spans(slots)
        if self._grouped is not None:
            self._grouped.append((spans, side))
        elif spans:
            self._write(Release(spans=spans, side=side, step=self._step))

    def moved(self, kept: Tensor, incoming: Tensor) -> None:
        books = self._books
        self._write(Move(kept=books.spans(kept), incoming=books.spans(incoming), step=self._step))

    def state_taken(self, slots: Tensor, rid: str | None) -> None:
        self._num_states += 1
        self._states[int(slots[0])] = self._num_states
        self._write(TakeState(state=self._num_states, request=rid, step=self._step))

    def states_freed(self, slots: Tensor) -> None:
        states = tuple(self._states.pop(slot) for slot in slots.tolist())
        self._write(FreeStates(states=states, step=self._step))

    def grouped(self, *, opens: bool) -> None:
        if opens:
            self._grouped = []
        else:
            self.flush()

    def flush(self) -> None:
        """Write the frees of a group that ends, or that never will."""
        releases, self._grouped = [each for each in self._grouped or [] if each[0]], None
        for index, (spans, side) in enumerate(releases, 1):
            more = index < len(releases)
            self._write(Release(spans=spans, side=side, more=more, step=self._step))

    def closed(self, tenancy: Tenancy) -> None:
        self._write(Leave(requests=(tenancy.name,), step=self._step))

    def _write(self, operation: Operation) -> None:
        self.num_operations += 1
        self._sink(operation)
