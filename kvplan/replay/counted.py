"""KV memory as counts: enough for every decision of the scheduler."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence as List

from kvplan.errors import OutOfSlots
from kvplan.replay.memory import KvMemory
from kvplan.replay.prefix_cache import Slots
from kvplan.replay.sequence import Part, Sequence
from kvplan.replay.server import Server
from kvplan.units import ceil_page, floor_page


class CountedMemory:
    """Tokens and rows that are free. Slots are ranges of which the lengths alone matter."""

    def __init__(self, num_tokens: int, page_size: int, num_rows: int) -> None:
        self.page_size = page_size
        self.available = floor_page(num_tokens, page_size)
        self.free_rows = num_rows

    def open_row(self, sequence: Sequence, prefix: List[Slots]) -> None:
        if not self.free_rows:
            raise OutOfSlots(f"no row is left for request '{sequence.rid}'")
        self.free_rows -= 1

    def close_row(self, sequence: Sequence) -> None:
        self.free_rows += 1

    def extend(self, parts: List[Part]) -> Slots | None:
        page = self.page_size
        num_pages = 0
        for part in parts:
            num_pages += -part.prefix_len // page - -part.stop // page  # a difference of ceilings
        return self.decode((), num_pages)

    def decode(self, sequences: Collection[Sequence], num_new_pages: int) -> Slots | None:
        num_tokens = num_new_pages * self.page_size
        if num_tokens > self.available:
            raise shortage(num_tokens, self.available)
        self.available -= num_tokens
        return None

    def reserve(self, sequences: Collection[Sequence], num_new_pages: int) -> Slots | None:
        return self.decode(sequences, num_new_pages)

    def row_slots(self, sequence: Sequence, start: int, stop: int) -> Slots:
        return range(start, stop)

    def write_row(self, sequence: Sequence, start: int, slots: Slots) -> None:
        pass

    def free(self, slots: Slots) -> None:
        page = self.page_size
        self.available += -(-len(slots) // page) * page

    def free_group_begin(self) -> None:
        pass

    def free_group_end(self) -> None:
        pass


class CountedSlidingMemory(CountedMemory):
    """Tokens that are free on a full and a sliding side: as many as the shorter one has."""

    def __init__(
        self, num_tokens: int, num_sliding_tokens: int, page_size: int, num_rows: int
    ) -> None:
        super().__init__(num_tokens, page_size, num_rows)
        self.full_available = self.available
        self.sliding_available = floor_page(num_sliding_tokens, page_size)
        self._grow(0, 0)

    def decode(self, sequences: Collection[Sequence], num_new_pages: int) -> Slots | None:
        super().decode(sequences, num_new_pages)
        num_tokens = num_new_pages * self.page_size
        self._grow(-num_tokens, -num_tokens)
        return None

    def free(self, slots: Slots) -> None:
        num_tokens = ceil_page(len(slots), self.page_size)
        self._grow(num_tokens, num_tokens)

    def free_full(self, slots: Slots) -> None:
        self._grow(ceil_page(len(slots), self.page_size), 0)

    def free_sliding(self, slots: Slots) -> None:
        self._grow(0, ceil_page(len(slots), self.page_size))

    def move_sliding(self, kept: Slots, incoming: Slots) -> None:
        pass

    def _grow(self, full: int, sliding: int) -> None:
        self.full_available += full
        self.sliding_available += sliding
        self.available = min(self.full_available, self.sliding_available)


class CountedStateMemory(CountedMemory):
    """Tokens, rows and state slots that are free."""

    def __init__(self, num_tokens: int, page_size: int, num_rows: int, num_states: int) -> None:
        super().__init__(num_tokens, page_size, num_rows)
        self.available_states = num_states

    def alloc_state(self, rid: str | None) -> Slots | None:
        if not self.available_states:
            return None
        self.available_states -= 1
        return range(1)

    def free_states(self, slots: Slots) -> None:
        self.available_states += len(slots)


def shortage(num_tokens: int, available: int) -> OutOfSlots:
    """The engine would stop here."""
    return OutOfSlots(
        f"{num_tokens} tokens are asked for and {available} are free",
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
