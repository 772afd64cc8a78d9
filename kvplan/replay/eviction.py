"""Which unlocked node of the prefix cache goes first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

from kvplan.errors import InputError, did_you_mean

PROTECTED_HITS = 2  # inserts that protect a node under --radix-eviction-policy slru


class Cached(Protocol):
    """What a policy looks at: times of a logical clock, and how often a node was inserted."""

    access_time: int
    creation_time: int
    hits: int


Rank = Any  # comparable with the other ranks of a policy; the lowest goes first

POLICIES: dict[str, Callable[[Cached], Rank]] = {
    "lru": attrgetter("access_time"),
    "mru": lambda node: -node.access_time,
    "fifo": attrgetter("creation_time"),
    "filo": lambda node: -node.creation_time,
    "lfu": attrgetter("hits", "access_time"),
    "slru": lambda node: (int(node.hits >= PROTECTED_HITS), node.access_time),
}


def policy_named(name: str) -> Callable[[Cached], Rank]:
    """The ranking of an eviction policy."""
    if name not in POLICIES:
        raise InputError(f"unknown eviction policy '{name}'", hint=did_you_mean(name, POLICIES))
    return POLICIES[name]


Node = TypeVar("Node", bound=Hashable)
LEAST = 64  # entries of a heap that are never swept


class EvictionQueue(Generic[Node]):
    """Candidates by rank. One whose rank changed is put again; its older entry lapses.

    Most come in the order of their ranks: these stand in a line, the others in a heap. New ones
    enter when a candidate is asked for: many are gone again before that.
    """

    def __init__(self, rank: Callable[[Node], Rank]) -> None:
        self._rank = rank
        self._line: deque[tuple[Rank, int, Node]] = deque()
        self._heap: list[tuple[Rank, int, Node]] = []
        self._tickets: dict[Node, int] = {}  # of the candidates in line or heap
        self._waiting: dict[Node, None] = {}  # to enter, once more if they are in
        self._last_ticket = 0
        self._most = LEAST  # with more entries the lapsed ones are swept out

    def __contains__(self, node: Node) -> bool:
        return node in self._tickets or node in self._waiting

    def put(self, node: Node) -> None:
        """Add a candidate, or rank it anew."""
        self._waiting[node] = None

    def drop(self, node: Node) -> None:
        """The node is no candidate any more."""
        self._waiting.pop(node, None)
        self._tickets.pop(node, None)

    def pop(self) -> Node | None:
        """The candidate that goes first, or None when there is none."""
        waiting, tickets = self._waiting, self._tickets
        if waiting:
            if len(waiting) == 1:  # mostly the parent of the one before
                (node,) = waiting
                if node not in tickets and self._goes_first(node):
                    waiting.clear()
                    return node
            self._rank_waiting()
        line, heap = self._line, self._heap
        while line or heap:
            in_line = not heap or (line and line[0] < heap[0])
            _, ticket, node = line.popleft() if in_line else heappop(heap)
            if tickets.get(node) == ticket:
                del tickets[node]
                return node
        return None

    def _goes_first(self, node: Node) -> bool:
        """Whether a node that has not entered yet surely comes before all that have."""
        rank, line, heap = self._rank(node), self._line, self._heap
        return (not line or rank < line[0][0]) and (not heap or rank < heap[0][0])

    def _rank_waiting(self) -> None:
        ranked, line, heap, ticket = self._rank, self._line, self._heap, self._last_ticket
        for node in self._waiting:
            ticket += 1
            self._tickets[node] = ticket
            rank = ranked(node)
            if not line or line[-1][0] <= rank:
                line.append((rank, ticket, node))
            else:
                heappush(heap, (rank, ticket, node))
        self._waiting.clear()
        self._last_ticket = ticket
        if len(line) + len(heap) > self._most:
            self._sweep()

    def _sweep(self) -> None:
        """Forget lapsed entries."""
        tickets = self._tickets
        self._line = deque(entry for entry in self._line if tickets.get(entry[2]) == entry[1])
        self._heap = [entry for entry in self._heap if tickets.get(entry[2]) == entry[1]]
        heapify(self._heap)
        self._most = LEAST + 4 * len(tickets)
