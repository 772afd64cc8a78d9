"""How long the calls of an allocator took on the host, in bounded memory."""

from __future__ import annotations

from collections import Counter

from kvplan.replay.outcome import Latency

KEPT_BITS = 6  # leading bits of a duration: percentiles are exact to 3 %


class Latencies:
    """Durations by operation."""

    def __init__(self) -> None:
        self._durations: dict[str, Counter[int]] = {}
        self._tokens: Counter[str] = Counter()
        self._total_ns: Counter[str] = Counter()

    def note(self, operation: str, duration_ns: int, num_tokens: int) -> None:
        """One call took so long and concerned so many tokens."""
        shift = max(0, duration_ns.bit_length() - KEPT_BITS)
        durations = self._durations.get(operation)
        if durations is None:
            durations = self._durations[operation] = Counter()
        durations[duration_ns >> shift << shift] += 1
        self._tokens[operation] += num_tokens
        self._total_ns[operation] += duration_ns

    def figures(self) -> tuple[Latency, ...]:
        """Percentiles and sums of each operation, in the order of their first calls."""
        return tuple(
            Latency(
                operation=operation,
                calls=durations.total(),
                tokens=self._tokens[operation],
                p50_ns=percentile(durations, 50),
                p99_ns=percentile(durations, 99),
                total_ns=self._total_ns[operation],
            )
            for operation, durations in self._durations.items()
        )


def percentile(counts: Counter[int], percent: int) -> int:
    """The smallest value that so many percent do not exceed."""
    wanted, seen = counts.total() * percent, 0
    for value in sorted(counts):
        seen += counts[value]
        if seen * 100 >= wanted:
            return value
    return 0
