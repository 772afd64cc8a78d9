"""The prefix cache beside recurrent state: a prefix can be used where its state is kept."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

import msgspec

from kvplan.replay.eviction import EvictionQueue
from kvplan.replay.keys import Key
from kvplan.replay.memory import StateMemory
from kvplan.replay.prefix_cache import Lock, Match, Node, PrefixCache, Slots, path
from kvplan.units import floor_page


class Kept(msgspec.Struct, frozen=True, gc=False):
    """What an insert says, and whether the cache took the state that came with it."""

    prefix_len: int
    node: Node
    took_state: bool


class StatePrefixCache(PrefixCache):
    """Nodes hold a state for their end, or none. A match ends at a node with one.

    A lock covers the path's KV, and the state of its last node. States are evicted least recent
    first: inner nodes keep their KV, leaves go whole.
    """

    def __init__(self, page_size: int, memory: StateMemory, policy: str = "lru") -> None:
        super().__init__(page_size, memory.free, policy)
        self.evictable_states = 0
        self._free_state: Callable[[Slots], None] = memory.free_states
        self._states: EvictionQueue[Node] = EvictionQueue(attrgetter("state_time"))

    def match(self, key: Key, limit: int) -> Match:
        best = last = self.root
        for node in self._walk(key, floor_page(limit, self.page_size), self.root):
            if node.state is not None:
                best = node
            last = node
        for node in path(best):
            self._touch(node)
        self._touch_state(best)
        return Match(best.stop, best, last.stop if last is not best else 0)

    def keep(
        self, key: Key, slots: Slots, state: Slots, held: Node | None = None, counted_to: int = 0
    ) -> Kept:
        """`insert`, with the state after the last of these tokens, unless there is one already."""
        inserted = self.insert(key, slots, held, counted_to)
        node = inserted.node
        if node is self.root or node.state is not None:
            self._touch_state(node)
            return Kept(inserted.prefix_len, node, took_state=False)
        node.state = state
        if not node.state_locks:
            self.evictable_states += 1
            self._states.put(node)
        self._touch_state(node)
        return Kept(inserted.prefix_len, node, took_state=True)

    def lock(self, node: Node) -> Lock:
        if node is self.root:
            return self.no_lock
        if not node.state_locks and node.state is not None:
            self.evictable_states -= 1
            self._states.drop(node)
        node.state_locks += 1
        return super().lock(node)

    def lower(self, lock: Lock, node: Node) -> Lock:
        self.unlock(lock)
        return self.lock(node)

    def unlock(self, lock: Lock) -> None:
        if lock is self.no_lock:
            return
        node = lock.node
        node.state_locks -= 1
        if not node.state_locks and node.state is not None:
            self.evictable_states += 1
            self._states.put(node)
        super().unlock(lock)

    def evict_states(self, num_states: int) -> None:
        """Release unlocked states until so many came back, as far as there are any."""
        wanted = self.evictable_states - num_states
        while self.evictable_states > max(wanted, 0):
            node = self._states.pop()
            assert node is not None, "evictable states are queued"
            if node in self._leaves:
                self._leaves.drop(node)
                self._drop_leaf(node)
            else:
                self._drop_state(node)

    def _drop_leaf(self, node: Node) -> None:
        super()._drop_leaf(node)
        if node.state is not None:
            self._states.drop(node)
            self._drop_state(node)

    def _drop_state(self, node: Node) -> None:
        self._free_state(node.state)
        node.state = None
        self.evictable_states -= 1

    def _touch_state(self, node: Node) -> None:
        self._clock += 1
        node.state_time = self._clock
        if node in self._states:
            self._states.put(node)
