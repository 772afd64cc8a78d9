"""Arrivals and answer lengths that the user supplies for formats which record none."""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.errors import TraceError
from kvplan.replay.workloads.arrivals import AtOnce, Poisson, arrival_times
from kvplan.replay.workloads.options import ReadOptions
from kvplan.replay.workloads.rows import MAX_TIME_NS


def supplied_arrivals(options: ReadOptions, lacking: str) -> Iterator[int]:
    """Arrival times in ns, Poisson at the given rate or all at 0; TraceError where none is given."""
    if options.request_rate is None:
        raise TraceError(
            f"no arrival times ({lacking})",
            hint="--request-rate 5 draws them at 5 requests a second, --request-rate inf puts all at time 0",
        )
    rate = options.request_rate
    process = AtOnce() if rate == float("inf") else Poisson(requests_per_s=rate)
    return in_range(arrival_times(process, f"{options.drawn_seed}:arrivals"))


def in_range(times: Iterator[int]) -> Iterator[int]:
    """Times as they are; TraceError for one that no clock holds."""
    for t_ns in times:
        if t_ns > MAX_TIME_NS:
            raise TraceError(
                "the arrivals go on for more than 146 years", hint="raise --request-rate"
            )
        yield t_ns


def refuse_rate(options: ReadOptions, where: str | None = None) -> None:
    """TraceError where arrivals are given for a file that has its own."""
    for flag, value in (("--request-rate", options.request_rate), ("--seed", options.seed)):
        if value is not None:
            raise TraceError(
                "the file has arrival times of its own", where=where, hint=f"leave {flag} out"
            )


def refuse_output(options: ReadOptions, where: str) -> None:
    """TraceError where answer lengths are given for a file that has its own."""
    if options.output_len is not None:
        raise TraceError(
            "the file has answer lengths of its own", where=where, hint="leave --output-len out"
        )
