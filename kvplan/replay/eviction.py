"""Which unlocked leaf of the prefix cache goes first."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from kvplan.errors import InputError, did_you_mean

PROTECTED_HITS = 2  # SLRU's protected segment


class Cached(Protocol):
    """What a policy looks at: times of a logical clock, and how often a node was inserted."""

    access_time: int
    creation_time: int
    hits: int
    ticket: int


Rank = tuple[int, int]  # the lowest goes first

POLICIES: dict[str, Callable[[Cached], Rank]] = {
    "lru": lambda node: (0, node.access_time),
    "mru": lambda node: (0, -node.access_time),
    "fifo": lambda node: (0, node.creation_time),
    "filo": lambda node: (0, -node.creation_time),
    "lfu": lambda node: (node.hits, node.access_time),
    "slru": lambda node: (int(node.hits >= PROTECTED_HITS), node.access_time),
}


def policy_named(name: str) -> Callable[[Cached], Rank]:
    """The ranking of an eviction policy."""
    if name not in POLICIES:
        raise InputError(f"unknown eviction policy '{name}'", hint=did_you_mean(name, POLICIES))
    return POLICIES[name]


Node = TypeVar("Node", bound=Cached)


class EvictionQueue(Generic[Node]):
    """Candidates by rank. A candidate whose rank changed is put again; its older entry lapses."""

    def __init__(self, policy: str) -> None:
        self._rank = policy_named(policy)
        self._heap: list[tuple[Rank, int, Node]] = []
        self._tickets = 0
        self._live = 0

    def put(self, node: Node) -> None:
        """Add a candidate, or rank it anew."""
        self._live += not node.ticket
        self._tickets += 1
        node.ticket = self._tickets
        heapq.heappush(self._heap, (self._rank(node), node.ticket, node))
        if len(self._heap) > 64 + 4 * self._live:
            self._heap = [entry for entry in self._heap if entry[1] == entry[2].ticket]
            heapq.heapify(self._heap)

    def drop(self, node: Node) -> None:
        """The node is no candidate any more."""
        self._live -= bool(node.ticket)
        node.ticket = 0

    def pop(self) -> Node | None:
        """The candidate that goes first, or None when there is none."""
        while self._heap:
            _, ticket, node = heapq.heappop(self._heap)
            if ticket == node.ticket:
                self.drop(node)
                return node
        return None
