"""What one prefill pass may admit: memory, chunk and input budgets."""

from __future__ import annotations

from enum import Enum, auto

from kvplan.replay.estimate import expected_new
from kvplan.replay.sequence import Part, Sequence
from kvplan.replay.server import Server
from kvplan.replay.store import KvStore
from kvplan.units import ceil_page, floor_page


class Stop(Enum):
    """Why a pass admits no further request."""

    NO_MEMORY = auto()
    OTHER = auto()


class PrefillBudget:
    """Budgets of one pass, opened anew for the next.

    Memory is read anew for each request: a locked prefix shrinks it.
    """

    def __init__(self, server: Server, store: KvStore) -> None:
        self.store = store
        self.page_size = server.page_size
        self._chunk = server.chunked_prefill_size
        self._input = server.max_prefill_tokens
        self.open(0.0)

    def open(self, reserved: float, num_mixed: int = 0) -> None:
        """Start a pass: so many new tokens are left for running requests.

        `num_mixed` of these take a token each of this very step.
        """
        self.parts: list[Part] = []
        self.num_tokens = 0
        self.chunked: Sequence | None = None  # whose prompt the pass leaves cut, one at most
        self._reserved = reserved + num_mixed
        self._spent = num_mixed  # tokens that the step computes

    def verdict(self) -> Stop | None:
        """Whether the pass may look at another request."""
        if self.store.reachable() <= self._reserved:
            return Stop.NO_MEMORY
        spent, chunk = self._spent, self._chunk
        if spent >= self._input or (chunk and spent >= chunk):
            return Stop.OTHER
        return None

    def continue_chunked(self, sequence: Sequence) -> None:
        """Take in the next part of a cut prompt."""
        assert self._chunk is not None
        limit = self._continuation_limit(self._chunk - self._spent)
        if limit <= 0:
            self.chunked = sequence  # it is parked until there is room
            return
        remaining = sequence.seq_len() - sequence.prefix_len
        taken = min(remaining, limit)
        self._admit(sequence, taken, remaining > taken)

    def admit(self, sequence: Sequence) -> Stop | None:
        """Take a waiting request whose prefix is matched in; returns why not, if it cannot be."""
        cache, seq_len, prefix_len = self.store.cache, sequence.seq_len(), sequence.prefix_len
        lock = cache.lock(sequence.node) if prefix_len else cache.no_lock
        remaining = seq_len - prefix_len
        new = expected_new(sequence.max_new, seq_len - sequence.prompt_len)
        limit = self._room(remaining, new)
        taken = Stop.NO_MEMORY if limit == 0 else self._choose(prefix_len, remaining, limit)
        if isinstance(taken, Stop):
            cache.unlock(lock)
            return taken
        sequence.lock = lock
        self._admit(sequence, taken, taken < remaining)
        return None

    def _choose(self, prefix_len: int, remaining: int, limit: int | None) -> int | Stop:
        """How many of a prompt's remaining tokens to compute now, its prefix being locked."""
        page = self.page_size
        paged = ceil_page(remaining, page)
        if limit is None:
            fits = not self.parts or paged < self._input - self._spent
            return remaining if fits else Stop.OTHER
        if paged <= limit:
            return remaining
        end = floor_page(prefix_len + floor_page(limit, page), page)
        # a second cut prompt would have nobody to go on with it
        return Stop.OTHER if end <= prefix_len or self.chunked is not None else end - prefix_len

    def _admit(self, sequence: Sequence, taken: int, is_middle: bool) -> None:
        start = sequence.prefix_len
        sequence.stop = stop = start + taken
        self.parts.append(Part(sequence, start, stop, is_middle))
        self.num_tokens += taken
        if is_middle:
            self.chunked = sequence
        paged = ceil_page(taken, self.page_size)
        self._reserve(paged, 0 if is_middle else expected_new(sequence.max_new, 0))
        self._spent += paged

    @property
    def _memory_left(self) -> float:
        return self.store.reachable() - self._reserved

    def _room(self, remaining: int, new: int) -> int | None:
        """Tokens that may be computed now: 0 if memory is short, None if nothing limits them."""
        if remaining + new + self.page_size >= self.store.reachable() - self._reserved:
            return 0
        return None if self._chunk is None else self._chunk - self._spent

    def _continuation_limit(self, chunk: int) -> int:
        """Tokens of the next part of a cut prompt: it must go on, or its slots never come back."""
        limit = min(chunk, int(self._memory_left))
        return limit if limit > 0 else chunk

    def _reserve(self, paged: int, new: int) -> None:
        """Reckon with what is admitted but not yet allocated: its pages, a page more, its answer."""
        self._reserved += paged + self.page_size + new
