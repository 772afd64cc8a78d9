"""Requests in the order of their arrival, follow-ups after the answer that they wait for."""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable

from kvplan.replay.requests import Request

REMEMBERED = 1 << 16


class Feed:
    """A stream of requests, read only as far as time has come.

    A request with a delay is held until its session has no unanswered request before it, and comes
    that long after the answer, but before none of the stream's that were taken already. Answers of
    the latest 65,536 sessions are remembered. `next_ns` is when the next one comes, as far as that
    is known.
    """

    def __init__(self, requests: Iterable[Request]) -> None:
        self.next_ns: int | None = None
        self._stream = iter(requests)
        self._head: Request | None = None
        self._due: list[tuple[int, int, Request]] = []  # follow-ups, by time and number
        self._num_due = 0
        self._unanswered: dict[str, int] = {}
        self._answered_ns: dict[str, int] = {}  # of sessions that wait for nothing
        self._held: dict[str, deque[Request]] = defaultdict(deque)
        self._advance(0)

    def pop(self) -> Request:
        """The request that comes next, at `next_ns`; there has to be one."""
        if self._due and self._due[0][0] == self.next_ns:
            request = heapq.heappop(self._due)[2]
            self._look()
            return request
        head = self._head
        assert head is not None
        if head.session is not None:
            self._count(head.session)
        self._advance(head.t_ns)
        return head

    def take(self) -> Request | None:
        """The request that comes next if it is for this server."""
        return self.pop()

    def skip_others(self) -> None:
        """Nothing runs here: what comes for other servers may be passed over."""

    def answered(self, session: str | None, now_ns: int) -> None:
        """A request of a session is done with: what waited for it comes after its delay."""
        if session is None:
            return
        self._unanswered[session] -= 1
        if self._held[session]:
            follow_up = self._held[session].popleft()
            self._schedule(follow_up, now_ns + (follow_up.delay_ns or 0))
        elif not self._unanswered[session]:
            del self._unanswered[session], self._held[session]
            self._remember(session, now_ns)
        self._look()

    def _schedule(self, follow_up: Request, due_ns: int) -> None:
        self._num_due += 1
        heapq.heappush(self._due, (due_ns, self._num_due, follow_up))

    def _remember(self, session: str, now_ns: int) -> None:
        answered = self._answered_ns
        answered.pop(session, None)
        answered[session] = now_ns
        if len(answered) > REMEMBERED:
            del answered[next(iter(answered))]

    def _advance(self, reached_ns: int) -> None:
        """Read the next request that waits for no answer; put those aside that do."""
        self._head = None
        for request in self._stream:
            delay_ns = request.delay_ns
            if delay_ns is None or not self._put_aside(request, delay_ns, reached_ns):
                self._head = request
                break
        self._look()

    def _put_aside(self, request: Request, delay_ns: int, reached_ns: int) -> bool:
        """Whether it waits: for an answer that is yet to come, or for a while after the last one."""
        session = request.session or ""
        answered_ns = self._answered_ns.get(session)
        if self._unanswered.get(session):
            self._held[session].append(request)
        elif answered_ns is not None:
            self._schedule(request, max(answered_ns + delay_ns, reached_ns))
        else:
            return False
        self._count(session)
        return True

    def _look(self) -> None:
        head, due = self._head, self._due
        next_ns = None if head is None else head.t_ns
        if due and (next_ns is None or due[0][0] < next_ns):
            next_ns = due[0][0]
        self.next_ns = next_ns

    def _count(self, session: str) -> None:
        self._unanswered[session] = self._unanswered.get(session, 0) + 1
