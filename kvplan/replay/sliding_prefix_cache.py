"""The prefix cache over a full and a sliding pool: nodes outlive their sliding slots."""

from __future__ import annotations

from operator import attrgetter

from kvplan.replay.eviction import EvictionQueue
from kvplan.replay.keys import Key
from kvplan.replay.memory import SlidingMemory
from kvplan.replay.prefix_cache import (
    Inserted,
    Lock,
    Match,
    Node,
    PrefixCache,
    Slots,
    path,
    upwards,
)
from kvplan.units import ceil_page, floor_page


class SlidingPrefixCache(PrefixCache):
    """A match ends where the `window` tokens before it, or all, still have their sliding slots.

    A lock covers the path on the full side and one window upwards on the sliding side. Sliding
    slots are evicted in an order of their own: within a path the deeper node is more recent.
    """

    def __init__(
        self, page_size: int, window: int, memory: SlidingMemory, policy: str = "lru"
    ) -> None:
        super().__init__(page_size, memory.free, policy)
        self.window = window
        self.evictable_sliding = 0
        self.protected_sliding = 0
        self._memory = memory
        self._sliding: EvictionQueue[Node] = EvictionQueue(attrgetter("sliding_time", "start"))

    def match(self, key: Key, limit: int) -> Match:
        best = last = self.root
        reach: float = float("inf")  # sliding slots without a gap before a node's end
        for node in self._walk(key, floor_page(limit, self.page_size), self.root):
            reach = reach + len(node) if node.has_sliding else 0
            if node.has_sliding and reach >= self.window:
                best = node
            last = node
        for node in path(best):
            self._touch(node)
        self._touch_window(best)
        return Match(best.stop, best, last.stop if last is not best else 0)

    def insert(
        self,
        key: Key,
        slots: Slots,
        held: Node | None = None,
        counted_to: int = 0,
        window_from: int = 0,
    ) -> Inserted:
        """As without sliding slots; those of the incoming ones begin at position `window_from`.

        A tombstone inside the incoming window takes them over, cut where the window begins.
        """
        node = self.root if held is None else self._touch_held(held, counted_to)
        first = node.stop
        stop = floor_page(first + len(slots), self.page_size)
        for child in self._walk(key, stop, node):
            node = child
            self._touch(node)
            live = min(max(window_from, node.start), node.stop) - node.start
            incoming = slots[node.start - first : node.stop - first]
            self._release_duplicates(incoming[: self._revive(node, incoming, live)], live)
            node.hits += node.stop > counted_to
        prefix_len = node.stop
        if prefix_len < stop:
            node = self._add(node, key, stop, slots[prefix_len - first : stop - first])
            self._fill_leaf(node, window_from)
            node.hits += stop > counted_to
            self._leaves.put(node)
        self._touch_window(node)
        return Inserted(prefix_len, node)

    def lock(self, node: Node) -> Lock:
        if node is self.root:
            return self.no_lock
        super().lock(node)
        start = node.stop
        for above in upwards(node):
            if node.stop - start >= self.window:
                break
            if not above.sliding_locks and above.has_sliding:
                self.evictable_sliding -= len(above)
                self.protected_sliding += len(above)
                self._sliding.drop(above)
            above.sliding_locks += 1
            start = above.start
        return Lock(node, start)

    def lower(self, lock: Lock, node: Node) -> Lock:
        self.unlock(lock)
        return self.lock(node)

    def unlock(self, lock: Lock) -> None:
        if lock is self.no_lock:
            return
        for node in upwards(lock.node):
            if node.stop <= lock.window_start:
                break
            node.sliding_locks -= 1
            if not node.sliding_locks and node.has_sliding:
                self.evictable_sliding += len(node)
                self.protected_sliding -= len(node)
                self._sliding.put(node)
        super().unlock(lock)

    def evict_both(self, num_full: int, num_sliding: int) -> None:
        """Evict until so many tokens of each side came back, as far as they are unlocked."""
        before = self.evictable_sliding
        self.evict(num_full)
        while before - self.evictable_sliding < num_sliding:
            node = self._sliding.pop()
            if node is None:
                return
            if node in self._leaves:
                self._leaves.drop(node)
                self._drop_leaf(node)
            else:
                self._memory.free_sliding(node.slots)
                self._bury(node)

    def _drop_leaf(self, node: Node) -> None:
        """Release a leaf with all that it has on both sides."""
        self._remove(node)
        if node.has_sliding:
            self._memory.free(node.slots)
            self._sliding.drop(node)
            self._bury(node)
        else:
            self._memory.free_full(node.slots)

    def _bury(self, node: Node) -> None:
        """An unlocked node has no sliding slots any more."""
        node.has_sliding = False
        self.evictable_sliding -= len(node)

    def _revive(self, node: Node, incoming: Slots, live: int) -> int:
        """Give a tombstone the incoming sliding slots, which begin at the `live`-th.

        Returns how many of the incoming slots are not used up.
        """
        if node.has_sliding or live == len(incoming):
            return len(incoming)
        if live:
            self._split(node, node.start + live)
        window = incoming[live:]
        if node.locks:
            self._memory.move_sliding(node.slots, window)
            self._memory.free_full(window)
        else:
            self._memory.free_full(node.slots)
            node.slots = window
        self._fill(node)
        return live

    def _release_duplicates(self, slots: Slots, live: int) -> None:
        """Release incoming slots of what is cached; only the `live`-th on have sliding ones."""
        if live:
            self._memory.free_full(slots[:live])
        if live < len(slots):
            self._memory.free(slots[live:])

    def _fill_leaf(self, leaf: Node, window_from: int) -> None:
        """Mark what a new leaf has on the sliding side, its last window a node of its own."""
        live = max(leaf.start, window_from)
        if live >= leaf.stop:
            return
        if live > leaf.start:
            self._split(leaf, live)
        window_start = leaf.stop - ceil_page(self.window, self.page_size)
        if window_start > leaf.start:
            self._fill(self._split(leaf, window_start))
        self._fill(leaf)

    def _fill(self, node: Node) -> None:
        """The node has sliding slots from now on."""
        node.has_sliding = True
        self._clock += 1
        node.sliding_time = self._clock
        if node.sliding_locks:
            self.protected_sliding += len(node)
        else:
            self.evictable_sliding += len(node)
            self._sliding.put(node)

    def _touch_window(self, node: Node) -> None:
        """Make the sliding slots of a window and a page before a node's end the most recent."""
        self._clock += 1
        for above in upwards(node):
            if node.stop - above.stop >= self.window + self.page_size:
                return
            if above.has_sliding:
                above.sliding_time = self._clock
                if above in self._sliding:
                    self._sliding.put(above)

    def _split(self, lower: Node, position: int) -> Node:
        upper = super()._split(lower, position)
        upper.has_sliding = lower.has_sliding
        upper.sliding_locks = lower.sliding_locks
        upper.sliding_time = lower.sliding_time
        if lower in self._sliding:
            self._sliding.put(lower)
            self._sliding.put(upper)
        return upper
