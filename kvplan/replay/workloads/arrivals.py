"""Arrival processes of made-up workloads, as endless streams of times in nanoseconds."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Annotated

import msgspec

from kvplan.replay.workloads.clock import SECOND

LEAST_RATE = 1e-6  # requests a second
Rate = Annotated[float, msgspec.Meta(ge=LEAST_RATE, le=1e6)]
Seconds = Annotated[float, msgspec.Meta(ge=1e-3, le=1e6)]


class Process(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="process"
):
    """Base of the processes: tagged by `process`."""


class Poisson(Process, frozen=True, kw_only=True, tag="poisson"):
    """Independent arrivals."""

    requests_per_s: Rate


class Gamma(Process, frozen=True, kw_only=True, tag="gamma"):
    """Gaps with a coefficient of variation: above 1 burstier than Poisson, below 1 steadier."""

    requests_per_s: Rate
    cv: Annotated[float, msgspec.Meta(ge=0.01, le=100)]


class Bursts(Process, frozen=True, kw_only=True, tag="bursts"):
    """Poisson arrivals while a burst lasts, none in the pauses; both last exponentially long."""

    requests_per_s: Rate
    burst_s: Seconds
    pause_s: Seconds


class Constant(Process, frozen=True, kw_only=True, tag="constant"):
    """One arrival every 1 / requests_per_s."""

    requests_per_s: Rate


class AtOnce(Process, frozen=True, kw_only=True, tag="at_once"):
    """Everything at time 0."""


Arrivals = Poisson | Gamma | Bursts | Constant | AtOnce


def arrival_times(process: Arrivals, seed: str) -> Iterator[int]:
    """Times in ns, never falling, the same for the same seed."""
    random = Random(seed)
    if isinstance(process, AtOnce):
        return repeated_zero()
    if isinstance(process, Constant):
        return steady(process.requests_per_s)
    if isinstance(process, Bursts):
        return bursts(process, random)
    return summed(process, random)


def repeated_zero() -> Iterator[int]:
    while True:
        yield 0


def steady(requests_per_s: float) -> Iterator[int]:
    number = 0
    while True:
        yield int(number * SECOND / requests_per_s)
        number += 1


def summed(process: Poisson | Gamma, random: Random) -> Iterator[int]:
    """The first arrival at 0, then gap after gap."""
    t_s = 0.0
    while True:
        yield int(t_s * SECOND)
        t_s += gap_s(process, random)


def gap_s(process: Poisson | Gamma, random: Random) -> float:
    if isinstance(process, Poisson):
        return random.expovariate(process.requests_per_s)
    shape = 1 / process.cv**2
    return random.gammavariate(shape, 1 / (shape * process.requests_per_s))


def bursts(process: Bursts, random: Random) -> Iterator[int]:
    start_s = 0.0
    while True:
        end_s = start_s + random.expovariate(1 / process.burst_s)
        t_s = start_s
        while t_s < end_s:
            yield int(t_s * SECOND)
            t_s += random.expovariate(process.requests_per_s)
        start_s = end_s + random.expovariate(1 / process.pause_s)
