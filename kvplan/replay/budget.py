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
    """Budgets of one pass. Memory is read anew for each request: a locked prefix shrinks it.

    `reserved` new tokens are left for running requests; `num_mixed` of these take a token each of
    this very step.
    """

    def __init__(self, server: Server, store: KvStore, reserved: float, num_mixed: int = 0) -> None:
        self.store = store
        self.page_size = server.page_size
        self.parts: list[Part] = []
        self.num_tokens = 0
        self.chunked: Sequence | None = None  # whose prompt the pass leaves cut, one at most
        self._reserved_total = reserved + num_mixed
        self._reserved_now = num_mixed
        self._chunk_left = server.chunked_prefill_size
        self._input_left = server.max_prefill_tokens
        self.is_spent = False  # whether the step computes as many tokens as it may
        if num_mixed:
            self._spend(num_mixed)

    def verdict(self) -> Stop | None:
        """Whether the pass may look at another request."""
        if not self._has_memory():
            return Stop.NO_MEMORY
        return Stop.OTHER if self.is_spent else None

    def continue_chunked(self, sequence: Sequence) -> None:
        """Take in the next part of a cut prompt."""
        assert self._chunk_left is not None
        limit = self._continuation_limit(self._chunk_left)
        if limit <= 0:
            self.chunked = sequence  # it is parked until there is room
            return
        remaining = sequence.seq_len - sequence.prefix_len
        taken = min(remaining, limit)
        self._admit(sequence, taken, remaining > taken)

    def admit(self, sequence: Sequence) -> Stop | None:
        """Take a waiting request whose prefix is matched in; returns why not, if it cannot be."""
        lock = self.store.cache.lock(sequence.node)
        chosen = self._choose(sequence)
        if isinstance(chosen, Stop):
            self.store.cache.unlock(lock)
            return chosen
        taken, is_middle = chosen
        sequence.lock = lock
        self._admit(sequence, taken, is_middle)
        return None

    def _choose(self, sequence: Sequence) -> tuple[int, bool] | Stop:
        """(tokens to compute now, whether the prompt is cut), its prefix being locked."""
        remaining = sequence.seq_len - sequence.prefix_len
        paged = ceil_page(remaining, self.page_size)
        limit = self._room(sequence, remaining)
        if limit == 0:
            return Stop.NO_MEMORY
        if limit is None:
            if self.parts and paged >= self._input_left:
                return Stop.OTHER
            return remaining, False
        if paged <= limit:
            return remaining, False
        end = floor_page(sequence.prefix_len + floor_page(limit, self.page_size), self.page_size)
        # a second cut prompt would have nobody to go on with it
        if end <= sequence.prefix_len or self.chunked is not None:
            return Stop.OTHER
        return end - sequence.prefix_len, True

    def _admit(self, sequence: Sequence, taken: int, is_middle: bool) -> None:
        sequence.stop = sequence.prefix_len + taken
        self.parts.append(Part(sequence, sequence.prefix_len, sequence.stop, is_middle))
        self.num_tokens += taken
        if is_middle:
            self.chunked = sequence
        paged = ceil_page(taken, self.page_size)
        self._reserve(paged, 0 if is_middle else expected_new(sequence.max_new, 0))
        self._spend(paged)

    def _spend(self, num_tokens: int) -> None:
        self._input_left -= num_tokens
        if self._chunk_left is not None:
            self._chunk_left -= num_tokens
        self.is_spent = self._input_left <= 0 or (
            self._chunk_left is not None and self._chunk_left <= 0
        )

    @property
    def _memory_left(self) -> float:
        return self.store.reachable() - self._reserved_total

    def _has_memory(self) -> bool:
        reachable = self.store.reachable()
        return reachable > self._reserved_total and reachable > self._reserved_now

    def _room(self, sequence: Sequence, remaining: int) -> int | None:
        """Tokens that may be computed now: 0 if memory is short, None if nothing limits them."""
        new = expected_new(sequence.max_new, sequence.outputs)
        left = self.store.reachable() - self._reserved_total
        return self._chunk_left if remaining + new + self.page_size < left else 0

    def _continuation_limit(self, chunk: int) -> int:
        """Tokens of the next part of a cut prompt: it must go on, or its slots never come back."""
        limit = min(chunk, int(self._memory_left))
        return limit if limit > 0 else chunk

    def _reserve(self, paged: int, new: int) -> None:
        """Reckon with what is admitted but not yet allocated: its pages, a page more, its answer."""
        self._reserved_now += paged + self.page_size
        self._reserved_total += paged + self.page_size + new
