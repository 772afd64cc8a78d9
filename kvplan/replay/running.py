"""The batch of requests that decode together."""

from __future__ import annotations

from collections.abc import Iterable

from kvplan.replay.estimate import MAX_NEW_ESTIMATE
from kvplan.replay.lockstep import Lockstep
from kvplan.replay.sequence import Sequence
from kvplan.units import ceil_div

TIE = 1e-6  # far above what rounding can move, far below a token


class Running:
    """Requests in batch order, `peak` of them at most so far. `full` closes admission until one
    leaves.

    `sequences` is an ordered set; once launched it is replaced, never changed, so that the batch
    may keep it. What the batch needs is kept as counts: requests by the residue of their length, and sums.
    """

    def __init__(self, lockstep: Lockstep) -> None:
        self.sequences: dict[Sequence, None] = {}
        self.full = False
        self.peak = 0
        self.lockstep = lockstep
        self._page_size = lockstep.page_size
        self._by_residue = [0] * lockstep.page_size  # unless all pages are of one token
        self._fresh: list[Sequence] = []  # joined since the latest launch: nothing reserved yet
        self._wishes = 0  # new tokens yet to come, and what came since the start
        self._num_long = 0  # requests that may ask for more than admission reckons with

    def __len__(self) -> int:
        return len(self.sequences)

    def join(self, newcomers: list[Sequence], *, in_front: bool = False) -> None:
        """Add requests whose prompt is computed, by default at the end."""
        if not self.sequences:
            self.full = False
        joined, page = self.sequences.copy(), self._page_size
        for sequence in newcomers:
            committed, outputs = sequence.join(self.lockstep)
            if page > 1:
                self._by_residue[committed % page] += 1
            self._wishes += sequence.max_new - outputs
            if sequence.max_new > MAX_NEW_ESTIMATE:
                self._num_long += 1
            joined[sequence] = None
        if self.lockstep.reserve:
            self._fresh += newcomers
        if in_front:
            joined = dict.fromkeys([*newcomers, *self.sequences])
        self.sequences = joined
        if len(joined) > self.peak:
            self.peak = len(joined)

    def leave(self, leavers: Iterable[Sequence], *, launched: bool = True) -> None:
        """Take requests out; that opens admission again. `launched`: a batch keeps the set."""
        staying = self.sequences.copy() if launched else self.sequences
        fresh, page = self._fresh, self._page_size
        for sequence in leavers:
            committed, outputs = sequence.leave()
            if page > 1:
                self._by_residue[committed % page] -= 1
            self._wishes -= sequence.max_new - outputs
            if sequence.max_new > MAX_NEW_ESTIMATE:
                self._num_long -= 1
            del staying[sequence]
            if fresh and sequence in fresh:
                fresh.remove(sequence)
        self.sequences = staying
        self.full = False

    def reorder(self, order: Iterable[Sequence]) -> None:
        """The same requests in another order, as a set that no batch has."""
        self.sequences = dict.fromkeys(order)

    def launch(self, num_steps: int = 1) -> None:
        """Decode steps were launched."""
        self.lockstep.launch(num_steps)
        if self._fresh:
            self._fresh = []

    def demand(self, num_steps: int = 1) -> tuple[int, int]:
        """What the next decode steps need together: new pages, and tokens that have to be free.

        Before each step the engine evicts for a page more than needed of each request; with
        speculation only if it needs any.
        """
        page, step, num_running = self._page_size, self.lockstep, len(self.sequences)
        if not step.reserve:
            if page == 1:
                num_tokens = num_steps * num_running
                return num_tokens, num_tokens
            start, before = step.committed, 0
            if num_steps > 1:
                before = self._pages_between(start, num_steps - 1)
            last = self._by_residue[-(start + num_steps - 1) % page]
            return before + last, (before + num_running) * page
        grown = step.next_reserved(num_steps) - step.reserved
        num_pages = self._pages_between(step.reserved, grown)
        wanted = 0
        for sequence in self._fresh:
            owned = ceil_div(sequence.committed(), page)
            reached = sequence.committed() - step.committed + step.reserved
            num_pages += ceil_div(reached, page) - owned
            wanted += owned * page - sequence.committed()
        wanted += num_pages * page
        if wanted and page > 1:
            wanted += num_running * page
        return num_pages, wanted

    def add_first_output(self, sequence: Sequence) -> int:
        """The prefill's token of a request came, which may be running already; what it misses."""
        if sequence.lockstep is not None:
            self._wishes -= 1
        return sequence.add_first_output()

    def expected_new(self, ratio: float) -> float:
        """New tokens that running requests are expected to take yet.

        The engine adds rounded products; one product is as good unless it falls on an integer.
        """
        if not self._num_long:
            expected = (self._wishes - len(self.sequences) * self.lockstep.generated) * ratio
            if TIE < expected % 1 < 1 - TIE:
                return expected
        return sum(
            [
                min(sequence.max_new - sequence.outputs(), MAX_NEW_ESTIMATE) * ratio
                for sequence in self.sequences
            ]
        )

    def _pages_between(self, start: int, num_tokens: int) -> int:
        """Pages that begin while every request grows by so many tokens from a common length."""
        page = self._page_size
        rounds, rest = divmod(num_tokens, page)
        num_pages = rounds * len(self.sequences)
        if rest:
            num_pages += sum([self._by_residue[-(start + token) % page] for token in range(rest)])
        return num_pages
