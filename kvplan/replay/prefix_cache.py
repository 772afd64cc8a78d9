"""The engine's radix tree: which prefixes are cached, who holds them, and what goes first."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, cast

import msgspec

from kvplan.replay.eviction import EvictionQueue, policy_named
from kvplan.replay.keys import Key, TokenKey
from kvplan.units import floor_page

# slots of consecutive positions, with a length and slices: an int64 tensor, a list of ids, or a
# range where only counts matter
Slots = Any


class Node(msgspec.Struct, eq=False):
    """The positions `start .. stop` of a key, cached behind those of its parents.

    Its parent knows it by its first `page`; the root is its own. Times are of the cache's clock.

    Over two pools `slots` are those of the full side; without `has_sliding` they have no sliding
    slots beside them any more. Beside recurrent state `state` is the one after the last position.
    """

    parent: Node
    page: Hashable
    key: Key
    start: int
    stop: int
    slots: Slots
    access_time: int
    creation_time: int
    hits: int = 0
    locks: int = 0
    children: dict[Hashable, Node] = {}
    has_sliding: bool = False
    sliding_locks: int = 0
    sliding_time: int = 0
    state: Slots | None = None
    state_locks: int = 0
    state_time: int = 0

    def __len__(self) -> int:
        return self.stop - self.start


class Match(msgspec.Struct, frozen=True, gc=False):
    """The longest cached prefix that can be used, and where it ends.

    Where the tree goes on with what cannot be used, that ends at `branch_len`.
    """

    prefix_len: int
    node: Node
    branch_len: int = 0


class Inserted(msgspec.Struct, frozen=True, gc=False):
    """How many tokens were there before, and the node where the key ends now."""

    prefix_len: int
    node: Node


class Lock(msgspec.Struct, frozen=True, gc=False):
    """A held path down to `node`; what is released must be what was locked."""

    node: Node
    window_start: int = 0


class PrefixCache:
    """A radix tree over whole pages.

    `release` takes slots that the tree gives up: of evicted nodes, and incoming ones of what was
    there before. Time is a logical clock: each touched node gets its own, later time. Whole
    leaves go at a time, so an eviction overshoots.
    """

    def __init__(
        self, page_size: int, release: Callable[[Slots], None], policy: str = "lru"
    ) -> None:
        self.page_size = page_size
        self.evictable = 0
        self.protected = 0
        self.evicted = 0
        self.root = new_root()
        self._release = release
        self.no_lock = Lock(self.root)
        self._nothing = Match(0, self.root)
        self._leaves: EvictionQueue[Node] = EvictionQueue(policy_named(policy))
        self._clock = 0

    def match(self, key: Key, limit: int) -> Match:
        """The longest cached prefix among the first `limit` tokens; a node it ends within is split."""
        node = self.root
        if key.page(0, self.page_size) not in node.children:
            return self._nothing
        for child in self._walk(key, floor_page(limit, self.page_size), node):
            self._touch(child)
            node = child
        return Match(node.stop, node)

    def insert(
        self, key: Key, slots: Slots, held: Node | None = None, counted_to: int = 0
    ) -> Inserted:
        """Cache the whole pages of a key's next `len(slots)` tokens.

        They come behind `held`, where the caller's lock on this key ends. What is cached of them
        keeps its slots: the incoming ones are released. Nodes that end by `counted_to` get no
        hit: they had theirs.
        """
        node = self.root
        if held is not None and held is not node:
            node = self._touch_held(held, counted_to)
        first = node.stop
        stop = floor_page(first + len(slots), self.page_size)
        if node.children and key.page(first, self.page_size) in node.children:
            for child in self._walk(key, stop, node):
                node = child
                if node.stop > counted_to:
                    node.hits += 1
                self._touch(node)
                self._release(slots[node.start - first : node.stop - first])
        prefix_len = node.stop
        if prefix_len < stop:
            if stop - prefix_len < len(slots):
                slots = slots[prefix_len - first : stop - first]
            node = self._add(node, key, stop, slots, int(stop > counted_to))
            self._leaves.put(node)
        return Inserted(prefix_len, node)

    def lock(self, node: Node) -> Lock:
        """Protect a path from eviction."""
        if node is self.root:
            return self.no_lock
        self._protect(self.root, node)
        return Lock(node)

    def lower(self, lock: Lock, node: Node) -> Lock:
        """Move a lock down to a node below its own."""
        self._protect(lock.node, node)
        return Lock(node)

    def _protect(self, top: Node, node: Node) -> None:
        """Lock the path below one node down to another."""
        while node is not top:
            if not node.locks:
                size = node.stop - node.start
                self.evictable -= size
                self.protected += size
                self._leaves.drop(node)
            node.locks += 1
            node = node.parent

    def unlock(self, lock: Lock) -> None:
        """Take one lock of a path back."""
        if lock is self.no_lock:
            return
        node, root = lock.node, self.root
        while node is not root:
            node.locks -= 1
            if not node.locks:
                size = node.stop - node.start
                self.evictable += size
                self.protected -= size
                if not node.children:
                    self._leaves.put(node)
            node = node.parent

    def evict(self, num_tokens: int) -> int:
        """Release whole unlocked leaves until `num_tokens` are free; returns how many went."""
        evicted = 0
        while evicted < num_tokens and (node := self._leaves.pop()) is not None:
            evicted += node.stop - node.start
            self._drop_leaf(node)
        return evicted

    def cut(self, node: Node, position: int) -> None:
        """Make a position on the path down to a node the end of one, so that what follows can go."""
        while node.start > position:
            node = node.parent
        if node.start < position < node.stop:
            self._split(node, position)

    def _walk(self, key: Key, stop: int, node: Node) -> list[Node]:
        """The nodes below one that hold a key's prefix; the last is split at the parting."""
        page = self.page_size
        found: list[Node] = []
        while node.stop < stop and node.children:
            child = node.children.get(key.page(node.stop, page))
            if child is None:
                return found
            shared = floor_page(key.common(child.key, child.start, min(child.stop, stop)), page)
            if shared < child.stop:
                found.append(self._split(child, shared))
                return found
            found.append(child)
            node = child
        return found

    def _touch_held(self, held: Node, counted_to: int) -> Node:
        """Touch a locked path; nodes that end behind a position get a hit.

        The deeper a node the later its time. A path has no more nodes than tokens.
        """
        node, root = held, self.root
        time = self._clock = self._clock + held.stop
        while node is not root:
            if node.stop > counted_to:
                node.hits += 1
            node.access_time = time
            time -= 1
            node = node.parent
        return held

    def _touch(self, node: Node) -> None:
        self._clock += 1
        node.access_time = self._clock
        if not node.locks and node in self._leaves:
            self._leaves.put(node)

    def _split(self, lower: Node, position: int) -> Node:
        """Cut a node in two; the upper one is new, with the hits and locks of the lower."""
        cut = position - lower.start
        self._clock += 1
        upper = Node(
            lower.parent,
            lower.page,
            lower.key,
            lower.start,
            position,
            lower.slots[:cut],
            access_time=self._clock,
            creation_time=self._clock,
            hits=lower.hits,
            locks=lower.locks,
        )
        lower.parent.children[lower.page] = upper
        lower.page = lower.key.page(position, self.page_size)
        upper.children[lower.page] = lower
        lower.parent = upper
        lower.start = position
        lower.slots = lower.slots[cut:]
        self._touch(lower)
        return upper

    def _add(self, parent: Node, key: Key, stop: int, slots: Slots, hits: int = 0) -> Node:
        """A new node, not yet a candidate."""
        start, time = parent.stop, self._clock + 1
        self._clock = time
        page = key.page(start, self.page_size)
        node = parent.children[page] = Node(parent, page, key, start, stop, slots, time, time, hits)
        if not parent.locks:
            self._leaves.drop(parent)
        self.evictable += stop - start
        return node

    def _drop_leaf(self, node: Node) -> None:
        """Take an unlocked leaf, which is no candidate any more, out with all that it holds."""
        self._remove(node)
        self._release(node.slots)

    def _remove(self, node: Node) -> None:
        """Take a leaf out of the tree; its parent may be a candidate now."""
        parent, size = node.parent, node.stop - node.start
        children = parent.children
        del children[node.page]
        self.evictable -= size
        self.evicted += size
        if not children and not parent.locks:
            self._leaves.put(parent)


def new_root() -> Node:
    """The empty prefix, which never goes."""
    node = Node(cast(Node, None), None, TokenKey(()), 0, 0, range(0), 0, 0, locks=1)
    node.parent = node
    return node


def upwards(node: Node) -> Iterator[Node]:
    """A node and those above it, without the root."""
    while node.parent is not node:
        yield node
        node = node.parent


def path(node: Node) -> list[Node]:
    """The nodes from below the root down to a node."""
    return list(upwards(node))[::-1]
