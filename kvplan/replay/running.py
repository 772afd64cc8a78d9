"""The batch of requests that decode together."""

from __future__ import annotations

from collections.abc import Iterable

from kvplan.replay.budget import MAX_NEW_ESTIMATE
from kvplan.replay.sequence import Lockstep, Sequence


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

    def __len__(self) -> int:
        return len(self.sequences)

    def join(self, newcomers: list[Sequence]) -> None:
        """Append requests whose prompt is computed."""
        if not self.sequences:
            self.full = False
        for sequence in newcomers:
            sequence.join(self.lockstep)
            self._by_residue[self._residue(sequence)] += 1
        self.sequences = [*self.sequences, *newcomers]

    def leave(self, leavers: Iterable[Sequence]) -> None:
        """Take requests out; that opens admission again."""
        gone = set(leavers)
        for sequence in gone:
            self._by_residue[self._residue(sequence)] -= 1
            sequence.leave()
        self.sequences = [sequence for sequence in self.sequences if sequence not in gone]
        self.full = False

    def new_pages(self) -> int:
        """Pages that the next decode step needs: one where a request's last page is full."""
        return self._by_residue[-self.lockstep.launched % self._page_size]

    def expected_new(self, ratio: float) -> float:
        """New tokens that running requests are expected to take yet."""
        return sum(
            [
                min(sequence.max_new - sequence.outputs, MAX_NEW_ESTIMATE) * ratio
                for sequence in self.sequences
            ]
        )

    def _residue(self, sequence: Sequence) -> int:
        return (sequence.committed - self.lockstep.launched) % self._page_size
