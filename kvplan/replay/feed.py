"""Requests in the order of their arrival, follow-ups after the answer that they wait for."""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable

from kvplan.replay.requests import Request

Arrival = tuple[int, Request]  # time in ns


class Feed:
    """A stream of requests, read only as far as time has come.

    A request with a delay is held until its session has no unanswered request before it.
    `next_ns` is when the next one comes, as far as that is known.
    """

    def __init__(self, requests: Iterable[Request]) -> None:
        self.next_ns: int | None = None
        self._stream = iter(requests)
        self._head: Request | None = None
        self._due: list[tuple[int, int, Request]] = []  # follow-ups, by time and number
        self._num_due = 0
        self._unanswered: dict[str, int] = {}
        self._held: dict[str, deque[Request]] = defaultdict(deque)
        self._advance()

    def take(self, now_ns: int) -> list[Arrival]:
        """The requests that came until now, with their times."""
        arrived: list[Arrival] = []
        while self.next_ns is not None and self.next_ns <= now_ns:
            time_ns = self.next_ns
            if self._due and self._due[0][0] == time_ns:
                arrived.append((time_ns, heapq.heappop(self._due)[2]))
                self._look()
            else:
                head = self._head
                assert head is not None
                arrived.append((time_ns, head))
                if head.session is not None:
                    self._count(head.session)
                self._advance()
        return arrived

    def answered(self, session: str | None, now_ns: int) -> None:
        """A request of a session is done with: what waited for it comes after its delay."""
        if session is None:
            return
        self._unanswered[session] -= 1
        if self._held[session]:
            follow_up = self._held[session].popleft()
            self._num_due += 1
            due = now_ns + (follow_up.delay_ns or 0)
            heapq.heappush(self._due, (due, self._num_due, follow_up))
        elif not self._unanswered[session]:
            del self._unanswered[session], self._held[session]
        self._look()

    def _advance(self) -> None:
        """Read the next request that does not wait for an answer; put those aside that do."""
        for request in self._stream:
            if request.delay_ns is None or not self._unanswered.get(request.session or ""):
                self._head = request
                self.next_ns = request.t_ns
                break
            session = request.session or ""
            self._count(session)
            self._held[session].append(request)
        else:
            self._head = self.next_ns = None
        if self._due:
            self._look()

    def _look(self) -> None:
        head, due = self._head, self._due
        self.next_ns = None if head is None else head.t_ns
        if due and (head is None or due[0][0] < head.t_ns):
            self.next_ns = due[0][0]

    def _count(self, session: str) -> None:
        self._unanswered[session] = self._unanswered.get(session, 0) + 1
