"""The batch of requests that decode together."""

from __future__ import annotations

from collections.abc import Iterable

from kvplan.replay.budget import MAX_NEW_ESTIMATE
from kvplan.replay.sequence import Lockstep, Sequence

TIE = 1e-6  # far above what rounding can move, far below a token


class Running:
    """Requests in batch order. `full` closes admission until one of them leaves.

    The list is replaced, never changed, so that a launched batch may keep it.
    """

    def __init__(self, page_size: int) -> None:
        self.sequences: list[Sequence] = []
        self.full = False
        self.lockstep = Lockstep()
        self._page_size = page_size
        self._by_residue = [0] * page_size
        self._wishes = 0  # new tokens yet to come, before the collected steps are taken off
        self._num_long = 0  # requests that may ask for more than admission reckons with

    def __len__(self) -> int:
        return len(self.sequences)

    def join(self, newcomers: list[Sequence]) -> None:
        """Append requests whose prompt is computed."""
        if not self.sequences:
            self.full = False
        for sequence in newcomers:
            sequence.join(self.lockstep)
            self._count(sequence, 1)
        self.sequences = [*self.sequences, *newcomers]

    def leave(self, leavers: Iterable[Sequence]) -> None:
        """Take requests out; that opens admission again."""
        staying = self.sequences.copy()
        for sequence in leavers:
            self._count(sequence, -1)
            sequence.leave()
            staying.remove(sequence)
        self.sequences = staying
        self.full = False

    def new_pages(self) -> int:
        """Pages that the next decode step needs: one where a request's last page is full."""
        return self._by_residue[-self.lockstep.launched % self._page_size]

    def new_pages_over(self, num_steps: int) -> int:
        """Pages that the next decode steps need together."""
        page = self._page_size
        rounds, rest = divmod(num_steps, page)
        launched = self.lockstep.launched
        return rounds * len(self.sequences) + sum(
            [self._by_residue[-(launched + step) % page] for step in range(rest)]
        )

    def add_first_output(self, sequence: Sequence) -> None:
        """The prefill's token of a request came, which may be running already."""
        sequence.add_first_output()
        if sequence.in_lockstep:
            self._wishes -= 1

    def expected_new(self, ratio: float) -> float:
        """New tokens that running requests are expected to take yet.

        The engine adds rounded products; one product is as good unless it falls on an integer.
        """
        if not self._num_long:
            expected = (self._wishes - len(self.sequences) * self.lockstep.collected) * ratio
            if abs(expected - round(expected)) > TIE:
                return expected
        return sum(
            [
                min(sequence.max_new - sequence.outputs, MAX_NEW_ESTIMATE) * ratio
                for sequence in self.sequences
            ]
        )

    def _count(self, sequence: Sequence, sign: int) -> None:
        residue = (sequence.committed - self.lockstep.launched) % self._page_size
        self._by_residue[residue] += sign
        self._wishes += sign * (sequence.max_new - sequence.outputs + self.lockstep.collected)
        self._num_long += sign * (sequence.max_new > MAX_NEW_ESTIMATE)
