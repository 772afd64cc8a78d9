"""Who holds which KV: requests, the prefix cache, or nobody."""

from __future__ import annotations

from collections.abc import Collection

from kvplan.replay.memory import KvMemory
from kvplan.replay.prefix_cache import Node, PrefixCache, Slots, path
from kvplan.replay.sequence import Part, Sequence
from kvplan.replay.server import Server
from kvplan.units import ceil_page, floor_page


class KvStore:
    """One pool of slots, shared by running requests and the prefix cache."""

    def __init__(self, server: Server, memory: KvMemory) -> None:
        self.memory = memory
        self.page_size = server.page_size
        self.caching = server.prefix_cache
        self._grow = memory.decode if server.speculation is None else memory.reserve
        self.cache = PrefixCache(server.page_size, memory.free, server.eviction_policy)

    def reachable(self) -> int:
        """Tokens that are free or could be by evicting."""
        return self.memory.available + self.cache.evictable

    def quiet_pages(self, num_running: int) -> int:  # noqa: ARG002
        """Pages that decode steps may take together as they would one after the other."""
        return self.reachable() // self.page_size

    def reclaim(self, num_tokens: int) -> bool:
        """Evict until so many tokens are free; whether they are."""
        shortfall = num_tokens - self.memory.available
        if shortfall <= 0:
            return True
        return self.cache.evict(shortfall) >= shortfall

    def match(self, sequence: Sequence) -> None:
        """Look up what is cached of a waiting request; at least one token is left to compute."""
        if not self.caching:
            return  # nothing is ever cached: its match stays at the root
        found = self.cache.match(sequence.key, sequence.seq_len() - 1)
        sequence.node = found.node
        sequence.prefix_len = sequence.protected_len = found.prefix_len
        sequence.branch_len = found.branch_len

    def extend(self, parts: list[Part], num_tokens: int) -> Slots | None:
        """Allocate a prefill batch of so many tokens, after evicting for its worst case.

        That is a page more for each part.
        """
        for part in parts:
            sequence = part.sequence
            if not sequence.holds_row:
                cached = slots_down_to(sequence.node) if sequence.prefix_len else ()
                self.memory.open_row(sequence, cached)
                sequence.holds_row = True
        page = self.page_size
        self.reclaim(num_tokens + len(parts) * page if page > 1 else num_tokens)
        out_cache_loc = self.memory.extend(parts)
        for part in parts:
            part.sequence.commit(part.stop)
        return out_cache_loc

    def decode(
        self, sequences: Collection[Sequence], num_pages: int, wanted_tokens: int
    ) -> Slots | None:
        """Allocate a decode step that was launched, after evicting for its worst case."""
        if wanted_tokens > num_pages * self.page_size:  # else the caller made room
            self.reclaim(wanted_tokens)
        return self._grow(sequences, num_pages)

    def checkpoint(self, sequence: Sequence, stop: int) -> None:
        """Hand the whole pages of the first `stop` tokens to the cache and lock them there."""
        if not self.caching:
            return
        cache, first, prompt_len = self.cache, sequence.protected_len, sequence.prompt_len
        slots = self.memory.row_slots(sequence, first, stop)
        inserted = cache.insert(sequence.key, slots, sequence.lock.node, sequence.counted_len)
        if stop > prompt_len and first != prompt_len:  # an answer can go without its prompt
            cache.cut(inserted.node, floor_page(prompt_len, self.page_size))
        self._hold(sequence, inserted.node, inserted.prefix_len)

    def release(self, sequence: Sequence, *, keep: bool) -> None:
        """Give back all that a request holds; with `keep` the cache takes its whole pages first."""
        owned = sequence.kept_len() if keep else sequence.committed()
        if keep:
            self.checkpoint(sequence, owned)
        if owned > sequence.protected_len:
            self._free_row(sequence, sequence.protected_len, owned)
        self.cache.unlock(sequence.lock)
        allocated = sequence.allocated()
        if allocated > owned and (whole := ceil_page(owned, self.page_size)) < allocated:
            self._free_row(sequence, whole, allocated)
        self.memory.close_row(sequence)
        sequence.holds_row = False

    def _hold(self, sequence: Sequence, node: Node, known_len: int) -> None:
        """Move a request's lock to where its insert ended, unless it gives all back anyway.

        Its row follows the cache's slots, if so much of it was `known` before.
        """
        if known_len > sequence.protected_len:
            self._follow(sequence, node)
        stop = sequence.protected_len = node.stop
        if not sequence.finished:
            sequence.lock = self.cache.lower(sequence.lock, node)
            if stop > sequence.counted_len:
                sequence.counted_len = stop

    def _follow(self, sequence: Sequence, node: Node) -> None:
        """Write the cache's slots down to a node into a row, from where they may differ."""
        while node.stop > sequence.protected_len:
            self.memory.write_row(sequence, node.start, node.slots)
            node = node.parent

    def _free_row(self, sequence: Sequence, start: int, stop: int) -> None:
        self.memory.free(self.memory.row_slots(sequence, start, stop))


def slots_down_to(node: Node) -> list[Slots]:
    """The slots of a cached prefix, node by node."""
    return [each.slots for each in path(node)]
