"""What a workload amounts to, as plain values: rows, lengths, pace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from kvplan.replay.requests import Request
from kvplan.replay.workloads.workload import Workload
from kvplan.units import NS_PER_S

EXACT_LENGTHS = 1 << 18
KEPT_BITS = 12


class LengthSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens per request. Percentiles are nearest ranks, exact below 262,144 tokens."""

    count: int
    mean: float
    p50: int
    p95: int
    p99: int
    max: int
    total: int


class WorkloadSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One workload: how it was read, what became of its rows, how long and how frequent they are.

    Lengths and the peak are those of the requests that were replayed, the rest is of the file.
    """

    detected: str
    read: int
    kept: int
    dropped: dict[str, int]
    flagged: dict[str, int]
    notes: tuple[str, ...]
    inversions: int
    span_s: float
    mean_rps: float
    peak_rps: int
    input: LengthSummary
    output: LengthSummary
    max_total: int
    with_max_new: int  # requests that say how many new tokens they ask for


class Lengths:
    """Lengths counted by value; above 262,144 tokens by their 12 leading bits."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.total = 0
        self.max = 0

    def note(self, length: int) -> None:
        """Take one length in."""
        self.total += length
        if length > self.max:
            self.max = length
        if length >= EXACT_LENGTHS:
            shift = length.bit_length() - KEPT_BITS
            length = length >> shift << shift
        self.counts[length] += 1

    def summary(self) -> LengthSummary:
        """Mean, percentiles, maximum and sum; zeros where nothing was counted."""
        count = self.counts.total()
        p50, p95, p99 = self.percentiles(50, 95, 99)
        return LengthSummary(
            count=count,
            mean=self.total / count if count else 0.0,
            p50=p50,
            p95=p95,
            p99=p99,
            max=self.max,
            total=self.total,
        )

    def percentiles(self, *percents: int) -> list[int]:
        """The smallest lengths that so many percent do not exceed."""
        ranked = sorted(self.counts.items())
        count = self.counts.total()
        found: list[int] = []
        seen, position = 0, -1
        for percent in percents:
            while position + 1 < len(ranked) and seen * 100 < percent * count:
                position += 1
                seen += ranked[position][1]
            found.append(ranked[position][0] if ranked else 0)
        return found


class Watch:
    """Counts requests as they pass, so that a replay can be summarised without reading twice."""

    def __init__(self) -> None:
        self.input = Lengths()
        self.output = Lengths()
        self.max_total = 0
        self.with_max_new = 0
        self.peak_rps = 0
        self.second = -1
        self.in_second = 0

    def note(self, request: Request) -> None:
        """Take one request in; they come in order of arrival."""
        self.input.note(request.input_len)
        self.output.note(request.output_len)
        self.max_total = max(self.max_total, request.input_len + request.output_len)
        if request.max_new is not None:
            self.with_max_new += 1
        second = request.t_ns // NS_PER_S
        if second != self.second:
            self.second, self.in_second = second, 0
        self.in_second += 1
        self.peak_rps = max(self.peak_rps, self.in_second)

    def watched(self, requests: Iterator[Request]) -> Iterator[Request]:
        """The same requests, counted on their way."""
        for request in requests:
            self.note(request)
            yield request

    def summary(self, workload: Workload, *, limit: int | None = None) -> WorkloadSummary:
        """The figures of what passed, with the workload's own counts."""
        tally = workload.tally
        cut = limit is not None and limit < tally.kept
        first = (f"the first {limit:,} of {tally.kept:,} requests (--limit)",) if cut else ()
        span_s = workload.span_ns / NS_PER_S
        return WorkloadSummary(
            detected=workload.detected.describe(),
            read=tally.read,
            kept=tally.kept,
            dropped=dict(tally.dropped),
            flagged=dict(tally.flagged),
            notes=(*workload.notes, *first),
            inversions=workload.inversions,
            span_s=span_s,
            mean_rps=tally.kept / span_s if span_s else 0.0,
            peak_rps=self.peak_rps,
            input=self.input.summary(),
            output=self.output.summary(),
            max_total=self.max_total,
            with_max_new=self.with_max_new,
        )


def summarize(workload: Workload) -> WorkloadSummary:
    """Read a workload through once and say what it amounts to."""
    watch = Watch()
    for request in workload:
        watch.note(request)
    return watch.summary(workload)
