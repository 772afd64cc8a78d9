"""The requests that one of several data-parallel ranks gets (--dp-size, round robin)."""

from __future__ import annotations

from collections.abc import Iterable

from kvplan.replay.assumptions import Assumptions
from kvplan.replay.feed import Feed
from kvplan.replay.requests import Request


class DealtFeed(Feed):
    """Every n-th request in the order in which they come, the first one among them.

    The others are answered elsewhere, without a queue, so that the follow-ups of their sessions
    come and are dealt out in turn.
    """

    def __init__(self, requests: Iterable[Request], num_ranks: int, others: Assumptions) -> None:
        super().__init__(requests)
        self._num_ranks = num_ranks
        self._others = others
        self._num_dealt = 0

    def take(self) -> Request | None:
        due_ns = self.next_ns
        is_own = self._num_dealt % self._num_ranks == 0
        self._num_dealt += 1
        request = self.pop()
        if is_own:
            return request
        assert due_ns is not None
        self.answered(request.session, due_ns + self._answer_ns(request))
        return None

    def skip_others(self) -> None:
        while self._num_dealt % self._num_ranks and self.next_ns is not None:
            self.take()

    def _answer_ns(self, request: Request) -> int:
        """How long another rank takes for a request that need not wait."""
        prefill_ns = self._others.prefill_ns(request.input_len)
        return prefill_ns + request.output_len * self._others.decode_ns
