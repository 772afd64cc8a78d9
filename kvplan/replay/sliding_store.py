"""Who holds which KV where layers differ in reach: full slots for all, sliding ones for a window."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kvplan.replay.memory import SlidingMemory
from kvplan.replay.prefix_cache import Slots
from kvplan.replay.sequence import Part, Sequence
from kvplan.replay.server import Server, SlidingPool
from kvplan.replay.sliding_prefix_cache import SlidingPrefixCache
from kvplan.replay.store import KvStore
from kvplan.sizing.sliding import EVICTION_INTERVAL
from kvplan.units import ceil_page, floor_page


def kept_window(window: int, page_size: int, *, shared: bool) -> int:
    """Tokens before its end whose sliding slots a request keeps; whole pages if it can be shared."""
    return ceil_page(max(window, page_size), page_size) if shared else window


class SlidingStore(KvStore):
    """Full and sliding slots of running requests and of the prefix cache.

    A request owns the sliding slots from its `sliding_start` on.
    """

    memory: SlidingMemory
    cache: SlidingPrefixCache

    def __init__(self, server: Server, pool: SlidingPool, memory: SlidingMemory) -> None:
        super().__init__(server, memory)
        self.cache = SlidingPrefixCache(
            server.page_size, pool.window, memory, server.eviction_policy
        )
        self.pool = pool
        self._window = pool.window
        self._kept = kept_window(pool.window, server.page_size, shared=server.prefix_cache)
        self._chunk = server.chunked_prefill_size or 0
        self._overlap = server.overlap

    def reachable(self) -> int:
        return self.memory.full_available + self.cache.evictable

    def reachable_sliding(self) -> int:
        """Sliding tokens that are free or could be by evicting."""
        return self.memory.sliding_available + self.cache.evictable_sliding

    def quiet_pages(self, num_running: int) -> int:
        # two sides evict in turns: only steps that evict nothing can be taken together
        return self.memory.available // self.page_size - num_running

    def quiet_tokens(self, sequences: Iterable[Sequence]) -> int:
        """Tokens that these requests may grow before one of them gives sliding slots back."""
        behind = self._window + EVICTION_INTERVAL
        return min([each.sliding_start + behind - each.seq_len() for each in sequences])

    def reclaim(self, num_tokens: int) -> bool:
        full = num_tokens - self.memory.full_available
        sliding = num_tokens - self.memory.sliding_available
        if full > 0 or sliding > 0:
            self.cache.evict_both(full, sliding)
        return self.memory.available >= num_tokens

    def match(self, sequence: Sequence) -> None:
        super().match(sequence)
        sequence.sliding_start = 0

    def extend(self, parts: list[Part], num_tokens: int) -> Slots | None:
        if not self.caching:
            self.memory.free_group_begin()
            for part in parts:
                self._slide_before(part)
            self.memory.free_group_end()
        return super().extend(parts, num_tokens)

    def decode(
        self, sequences: Collection[Sequence], num_pages: int, wanted_tokens: int
    ) -> Slots | None:
        self.memory.free_group_begin()
        for sequence in sequences:
            if sequence.decoded_before():
                self._slide(sequence, sequence.seq_len() - 1, EVICTION_INTERVAL)
        self.memory.free_group_end()
        return super().decode(sequences, num_pages, wanted_tokens)

    def checkpoint(self, sequence: Sequence, stop: int) -> None:
        """Hand over whole pages; up to where a tombstone ends, if the match met one."""
        if not self.caching:
            return
        branch = sequence.branch_len
        branches = sequence.protected_len < branch <= stop
        end = branch if branches else stop
        if not sequence.finished:
            self._slide(sequence, end - 1)
        inserted = self.cache.insert(
            sequence.key,
            self.memory.row_slots(sequence, sequence.protected_len, end),
            sequence.lock.node,
            sequence.counted_len,
            sequence.sliding_start,
        )
        self._hold(sequence, inserted.node, inserted.prefix_len)
        if branches:
            sequence.branch_len = 0
            if not sequence.finished:
                self._slide(sequence, sequence.stop - 1)

    def _slide(self, sequence: Sequence, position: int, interval: int = 1) -> None:
        """Give back the sliding slots that a request at a position does not see any more."""
        if position - self._window < sequence.sliding_start + interval:
            return
        start = max(sequence.sliding_start, sequence.protected_len)
        stop = floor_page(max(start, position - self._kept), self.page_size)
        if stop > start:
            self.memory.free_sliding(self.memory.row_slots(sequence, start, stop))
        sequence.sliding_start = max(start, stop)

    def _slide_before(self, part: Part) -> None:
        """Before a part of a prompt, as far as no batch in flight still reads."""
        if not self._overlap:
            self._slide(part.sequence, part.prefix_len)
        elif part.sequence.num_parts >= 2:
            self._slide(part.sequence, part.prefix_len - self._chunk)

    def _free_row(self, sequence: Sequence, start: int, stop: int) -> None:
        live = min(max(sequence.sliding_start, start), stop)
        if start < live:
            self.memory.free_full(self.memory.row_slots(sequence, start, live))
        if live < stop:
            self.memory.free(self.memory.row_slots(sequence, live, stop))
