"""Which unlocked node of the prefix cache goes first."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

from kvplan.errors import InputError, did_you_mean

PROTECTED_HITS = 2  # SLRU's protected segment


class Cached(Protocol):
    """What a policy looks at: times of a logical clock, and how often a node was inserted."""

    access_time: int
    creation_time: int
    hits: int


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


Node = TypeVar("Node", bound=Hashable)


class EvictionQueue(Generic[Node]):
    """Candidates by rank. One whose rank changed is put again; its older entry lapses.

    New candidates enter the heap when one is asked for: many are gone again before that.
    """

    def __init__(self, rank: Callable[[Node], Rank]) -> None:
        self._rank = rank
        self._heap: list[tuple[Rank, int, Node]] = []
        self._tickets: dict[Node, int] = {}  # of the candidates in the heap; 0: not yet there
        self._waiting: dict[Node, None] = {}
        self._last_ticket = 0

    def __contains__(self, node: Node) -> bool:
        return node in self._tickets

    def put(self, node: Node) -> None:
        """Add a candidate, or rank it anew."""
        self._tickets[node] = 0
        self._waiting[node] = None

    def drop(self, node: Node) -> None:
        """The node is no candidate any more."""
        if self._tickets.pop(node, None) == 0:
            del self._waiting[node]

    def pop(self) -> Node | None:
        """The candidate that goes first, or None when there is none."""
        if self._waiting:
            self._rank_waiting()
        while self._heap:
            _, ticket, node = heapq.heappop(self._heap)
            if self._tickets.get(node) == ticket:
                del self._tickets[node]
                return node
        return None

    def _rank_waiting(self) -> None:
        for node in self._waiting:
            self._last_ticket += 1
            self._tickets[node] = self._last_ticket
            heapq.heappush(self._heap, (self._rank(node), self._last_ticket, node))
        self._waiting.clear()
        if len(self._heap) > 64 + 4 * len(self._tickets):
            self._heap = [entry for entry in self._heap if self._tickets.get(entry[2]) == entry[1]]
            heapq.heapify(self._heap)
