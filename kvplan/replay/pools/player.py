"""Plays operations by request name on the memory of a replay, without a scheduler."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from kvplan.errors import OutOfSlots, TraceError
from kvplan.replay.keys import OwnKey
from kvplan.replay.pools.sliding import SlidingPoolMemory
from kvplan.replay.pools.states import StatePoolMemory
from kvplan.replay.pools.watched import Growth, WatchedMemory, Watcher
from kvplan.replay.prefix_cache import PrefixCache
from kvplan.replay.sequence import Part, Sequence
from kvplan.replay.workloads.operations import (
    Alloc,
    Decode,
    Evict,
    Extend,
    Follow,
    Free,
    FreeStates,
    Leave,
    Move,
    Operation,
    Release,
    Reserve,
    Side,
    Span,
    TakeState,
)


class Pages(Watcher):
    """The page that each request was given for each of its page-long stretches of positions."""

    def __init__(self, page_size: int) -> None:
        self.of: dict[str, dict[int, int]] = {}  # request -> first position -> page
        self._page_size = page_size

    def grown(self, growth: Growth) -> None:
        page_size = self._page_size
        at = 0
        bounds = zip(growth.tenancies, growth.starts.tolist(), growth.stops.tolist(), strict=True)
        for tenancy, start, stop in bounds:
            first = -(-start // page_size) * page_size
            pages = growth.slots[at + first - start : at + stop - start : page_size] // page_size
            held = self.of.setdefault(tenancy.name, {})
            held.update(zip(range(first, stop, page_size), pages.tolist(), strict=True))
            at += stop - start

    def slots(self, spans: Iterable[Span]) -> list[int]:
        """Slots of spans, one after another; TraceError where nobody has them."""
        found: list[int] = []
        for name, start, stop in spans:
            held = self.of.get(name, {})
            for position in range(start, stop, self._page_size):
                if position not in held:
                    raise TraceError(f"request '{name}' has no slots from position {position} on")
                first = held[position] * self._page_size
                found += range(first, first + min(self._page_size, stop - position))
        return found

    def drop(self, spans: Iterable[Span]) -> None:
        """The slots of these spans went back."""
        for name, start, stop in spans:
            held = self.of[name]
            for position in range(start, stop, self._page_size):
                del held[position]
            if not held:
                del self.of[name]

    def left(self, name: str) -> list[Span]:
        """What a request still owns, page by page."""
        page_size = self._page_size
        return [(name, start, start + page_size) for start in self.of.get(name, {})]


class Player:
    """Applies operations one by one; what the memory refuses, it raises."""

    def __init__(self, memory: WatchedMemory) -> None:
        self._memory = memory
        self._pages = Pages(memory.page_size)
        self._device = memory.inner.allocator.device
        self._sequences: dict[str, Sequence] = {}
        self._cached: deque[str] = deque()  # requests that left tokens behind, the first first
        self._states: dict[int, Tensor] = {}
        self._grouped = False
        self._no_lock = PrefixCache(1, lambda _: None).no_lock
        memory.watchers.append(self._pages)
        self._players: dict[type[Operation], Callable[[Any], None]] = {
            Alloc: self._alloc,
            Extend: self._extend,
            Decode: self._decode,
            Reserve: self._reserve,
            Follow: self._follow,
            Release: self._release,
            Move: self._move,
            TakeState: self._take_state,
            FreeStates: self._free_states,
            Leave: self._leave,
            Free: self._free,
            Evict: self._evict,
        }

    @property
    def between_releases(self) -> bool:
        """Whether slots are on their way back."""
        return self._grouped

    def play(self, operation: Operation) -> None:
        """One operation; TraceError where it speaks of slots that nobody has."""
        self._players[type(operation)](operation)

    def _alloc(self, operation: Alloc) -> None:
        prefixes = operation.prefixes or ((),) * len(operation.requests)
        for name, prefix in zip(operation.requests, prefixes, strict=True):
            sequence = Sequence(name, OwnKey(), 0, 0, 0, self._no_lock)
            slots = self._tensor(self._pages.slots(prefix))
            self._memory.open_row(sequence, [slots] if len(slots) else [])
            sequence.commit(len(slots))
            self._sequences[name] = sequence

    def _extend(self, operation: Extend) -> None:
        grown = zip(operation.requests, operation.prefix_lens, operation.seq_lens, strict=True)
        parts = []
        for name, prefix_len, seq_len in grown:
            sequence = self._sequences[name]
            if sequence.committed() != prefix_len:
                raise TraceError(
                    f"request '{name}' starts behind {prefix_len} cached tokens, and no"
                    " 'prefixes' of its alloc says whose"
                )
            parts.append(Part(sequence, prefix_len, seq_len, is_middle=False))
        self._memory.extend(parts)
        for part in parts:
            part.sequence.commit(part.stop)

    def _decode(self, operation: Decode) -> None:
        sequences = [self._sequences[name] for name in operation.requests]
        for sequence in sequences:
            sequence.commit(sequence.committed() + 1)
        self._memory.decode(sequences, 0)

    def _reserve(self, operation: Reserve) -> None:
        sequences = [self._sequences[name] for name in operation.requests]
        for sequence, seq_len in zip(sequences, operation.seq_lens, strict=True):
            sequence.commit(seq_len)
        self._memory.reserve(sequences, 0)

    def _follow(self, operation: Follow) -> None:
        slots = self._tensor(self._pages.slots(operation.spans))
        self._memory.write_row(self._sequences[operation.request], operation.start, slots)

    def _release(self, operation: Release) -> None:
        if not self._grouped:
            self._grouped = True
            self._memory.free_group_begin()
        self._give_back(operation.spans, operation.side)
        if not operation.more:
            self._grouped = False
            self._memory.free_group_end()

    def _move(self, operation: Move) -> None:
        if not isinstance(self._memory.inner, SlidingPoolMemory):
            raise TraceError("the launch has no sliding pool")
        kept, incoming = self._pages.slots(operation.kept), self._pages.slots(operation.incoming)
        self._memory.move_sliding(self._tensor(kept), self._tensor(incoming))

    def _take_state(self, operation: TakeState) -> None:
        self._refuse_states()
        slots = self._memory.alloc_state(operation.request)
        if slots is None:
            raise OutOfSlots("no state slot is left")
        self._states[operation.state] = slots

    def _free_states(self, operation: FreeStates) -> None:
        self._refuse_states()
        for state in operation.states:
            self._memory.free_states(self._states.pop(state))

    def _refuse_states(self) -> None:
        if not isinstance(self._memory.inner, StatePoolMemory):
            raise TraceError("the launch has no recurrent states")

    def _leave(self, operation: Leave) -> None:
        for name in operation.requests:
            self._memory.close_row(self._sequences.pop(name))
            self._cached.append(name)

    def _free(self, operation: Free) -> None:
        for name in operation.requests:
            self._give_back(self._pages.left(name), "both")
            sequence = self._sequences.pop(name)
            sequence.finished = True  # its name may come again
            self._memory.close_row(sequence)

    def _evict(self, operation: Evict) -> None:
        missing = operation.num_tokens
        while missing > 0 and self._cached:
            spans = self._pages.left(self._cached.popleft())
            self._give_back(spans, "both")
            missing -= len(spans) * self._memory.page_size

    def _give_back(self, spans: Iterable[Span], side: Side) -> None:
        spans = list(spans)
        slots = self._tensor(self._pages.slots(spans))
        if not len(slots):
            return
        if side != "both" and not isinstance(self._memory.inner, SlidingPoolMemory):
            raise TraceError("the launch has no sliding pool")
        match side:
            case "both":
                self._memory.free(slots)
            case "full":
                self._memory.free_full(slots)
            case "sliding":
                self._memory.free_sliding(slots)
                return
        self._pages.drop(spans)

    def _tensor(self, slots: list[int]) -> Tensor:
        return torch.tensor(slots, dtype=torch.int64).to(self._device)
