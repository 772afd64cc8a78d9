"""What became of every row of a workload: read, kept, dropped by reason, noted."""

from __future__ import annotations

from collections import Counter

from kvplan.errors import TraceError
from kvplan.replay.workloads.rows import BadRow


class Tally:
    """Counts that must reconcile: read = kept + the sum of dropped.

    `flagged` counts kept rows that need a remark (prefill only, …); `notes` are sentences about
    the file as a whole, in the order they came up.
    """

    def __init__(self, *, skip_bad_rows: bool = False) -> None:
        self.skip_bad_rows = skip_bad_rows
        self.read = 0
        self.kept = 0
        self.dropped: Counter[str] = Counter()
        self.flagged: Counter[str] = Counter()
        self.notes: list[str] = []

    @property
    def reconciles(self) -> bool:
        """Whether no row got lost between reading and keeping."""
        return self.read == self.kept + self.dropped.total()

    def bad(self, error: BadRow, where: str) -> None:
        """Refuse the file at a bad row, or count the row and go on."""
        if self.skip_bad_rows:
            self.dropped[error.reason] += 1
            return
        hint = error.hint or "--skip-bad-rows counts such rows and goes on"
        raise TraceError(error.problem, where=where, hint=hint) from None

    def note(self, text: str) -> None:
        """Remember a remark once."""
        if text not in self.notes:
            self.notes.append(text)

    def describe(self) -> str:
        """One line: `19,366 read, 19,366 kept`, with what was dropped and why."""
        parts = [f"{self.read:,} read", f"{self.kept:,} kept"]
        parts += [f"{count:,} dropped ({reason})" for reason, count in self.dropped.items()]
        return ", ".join(parts)
