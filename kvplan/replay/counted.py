"""KV memory as counts: enough for every decision of the scheduler."""

from __future__ import annotations

from collections.abc import Sequence as List
from contextlib import AbstractContextManager, nullcontext

from kvplan.errors import ReplayViolation
from kvplan.replay.memory import KvMemory
from kvplan.replay.prefix_cache import Slots
from kvplan.replay.sequence import Part, Sequence
from kvplan.replay.server import Server
from kvplan.units import ceil_div

NO_GROUP = nullcontext()  # frees of counts need no common end


class CountedMemory:
    """Free pages and free rows. Slots are ranges of which the lengths alone matter."""

    def __init__(self, num_tokens: int, page_size: int, num_rows: int) -> None:
        self.page_size = page_size
        self.num_pages = num_tokens // page_size
        self.num_rows = num_rows
        self._free_pages = self.num_pages
        self._free_rows = num_rows

    def available(self) -> int:
        return self._free_pages * self.page_size

    def free_rows(self) -> int:
        return self._free_rows

    def open_row(self, sequence: Sequence, prefix: List[Slots]) -> None:
        if not self._free_rows:
            raise ReplayViolation(f"no row is left for request '{sequence.rid}'")
        self._free_rows -= 1

    def close_row(self, sequence: Sequence) -> None:
        self._free_rows += 1

    def extend(self, parts: List[Part]) -> Slots | None:
        page = self.page_size
        num_pages = 0
        for part in parts:
            num_pages += -part.prefix_len // page - -part.stop // page  # a difference of ceilings
        return self.decode((), num_pages)

    def decode(self, sequences: List[Sequence], num_new_pages: int) -> Slots | None:
        if num_new_pages > self._free_pages:
            raise shortage(num_new_pages, self._free_pages)
        self._free_pages -= num_new_pages
        return None

    def reserve(self, sequences: List[Sequence], num_new_pages: int) -> Slots | None:
        return self.decode(sequences, num_new_pages)

    def row_slots(self, sequence: Sequence, start: int, stop: int) -> Slots:
        return range(start, stop)

    def write_row(self, sequence: Sequence, start: int, slots: Slots) -> None:
        pass

    def free(self, slots: Slots) -> None:
        self._free_pages += -(-len(slots) // self.page_size)

    def free_group(self) -> AbstractContextManager[None]:
        return NO_GROUP


class CountedSlidingMemory(CountedMemory):
    """Free pages of a full and a sliding pool."""

    def __init__(
        self, num_tokens: int, num_sliding_tokens: int, page_size: int, num_rows: int
    ) -> None:
        super().__init__(num_tokens, page_size, num_rows)
        self._free_sliding_pages = num_sliding_tokens // page_size

    def available(self) -> int:
        return min(self.full_available(), self.sliding_available())

    def full_available(self) -> int:
        return super().available()

    def sliding_available(self) -> int:
        return self._free_sliding_pages * self.page_size

    def free(self, slots: Slots) -> None:
        self.free_full(slots)
        self.free_sliding(slots)

    def free_full(self, slots: Slots) -> None:
        super().free(slots)

    def free_sliding(self, slots: Slots) -> None:
        self._free_sliding_pages += ceil_div(len(slots), self.page_size)

    def move_sliding(self, kept: Slots, incoming: Slots) -> None:
        pass

    def decode(self, sequences: List[Sequence], num_new_pages: int) -> Slots | None:
        if num_new_pages > self._free_sliding_pages:
            raise shortage(num_new_pages, self._free_sliding_pages)
        super().decode(sequences, num_new_pages)
        self._free_sliding_pages -= num_new_pages
        return None


class CountedStateMemory(CountedMemory):
    """Free pages, rows and state slots."""

    def __init__(self, num_tokens: int, page_size: int, num_rows: int, num_states: int) -> None:
        super().__init__(num_tokens, page_size, num_rows)
        self._free_states = num_states

    def available_states(self) -> int:
        return self._free_states

    def alloc_state(self) -> Slots | None:
        if not self._free_states:
            return None
        self._free_states -= 1
        return range(1)

    def free_states(self, slots: Slots) -> None:
        self._free_states += len(slots)


def shortage(num_pages: int, num_free: int) -> ReplayViolation:
    """The engine would stop here."""
    return ReplayViolation(
        f"{num_pages} pages are asked for and {num_free} are free",
        hint="the engine would stop here with an out-of-memory error",
    )


def count_memory(server: Server) -> KvMemory:
    """The counts that a launch needs."""
    tokens, page, rows = server.num_tokens, server.page_size, server.num_rows
    if server.sliding is not None:
        return CountedSlidingMemory(tokens, server.sliding.num_tokens, page, rows)
    if server.states is not None:
        return CountedStateMemory(tokens, page, rows, server.states.num_slots)
    return CountedMemory(tokens, page, rows)
