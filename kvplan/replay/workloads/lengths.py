"""Length distributions of made-up workloads: whole numbers drawn from a seeded stream.

Checks raise ValueError, which msgspec turns into a refusal with the place in the file.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate
from random import Random
from statistics import NormalDist
from typing import Annotated

import msgspec

MAX_DRAWN = 1 << 27
MAX_ZIPF = 1_000_000
P95 = NormalDist().inv_cdf(0.95)

Length = Annotated[int, msgspec.Meta(ge=0, le=MAX_DRAWN)]
Draw = Callable[[Random], int]


class Distribution(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="distribution"
):
    """Base of the distributions: tagged by `distribution`."""


class Fixed(Distribution, frozen=True, kw_only=True, tag="constant"):
    """Always the same."""

    value: Length


class Uniform(Distribution, frozen=True, kw_only=True, tag="uniform"):
    """Every whole number of `min .. max` alike."""

    min: Length
    max: Length

    def __post_init__(self) -> None:
        ordered(self.min, self.max)


class Lognormal(Distribution, frozen=True, kw_only=True, tag="lognormal"):
    """Half below `median`, 95 % below `p95`; drawn values are held inside `min .. max`."""

    median: Annotated[int, msgspec.Meta(ge=1, le=MAX_DRAWN)]
    p95: Annotated[int, msgspec.Meta(ge=1, le=MAX_DRAWN)]
    min: Length = 1
    max: Length = MAX_DRAWN

    def __post_init__(self) -> None:
        ordered(self.min, self.max)
        if self.p95 < self.median:
            raise ValueError(f"p95 {self.p95} lies below the median {self.median}")


class Quantiles(Distribution, frozen=True, kw_only=True, tag="quantiles"):
    """Straight lines between `[percent, value]` points, which run from 0 to 100."""

    points: Annotated[list[tuple[float, Length]], msgspec.Meta(min_length=2, max_length=10_000)]

    def __post_init__(self) -> None:
        percents = [percent for percent, _ in self.points]
        if percents[0] != 0 or percents[-1] != 100 or percents != sorted(set(percents)):
            raise ValueError(
                "the percents must rise from 0 to 100: [[0, 10], [50, 300], [100, 4000]]"
            )
        values = [value for _, value in self.points]
        if values != sorted(values):
            raise ValueError("the values must not fall from point to point")


class Empirical(Distribution, frozen=True, kw_only=True, tag="empirical"):
    """One of `values`, as often as its weight says; alike without weights."""

    values: Annotated[list[Length], msgspec.Meta(min_length=1, max_length=1_000_000)]
    weights: list[Annotated[float, msgspec.Meta(ge=0, le=1e12)]] | None = None

    def __post_init__(self) -> None:
        if self.weights is None:
            return
        if len(self.weights) != len(self.values):
            raise ValueError(f"{len(self.weights)} weights for {len(self.values)} values")
        if not sum(self.weights) > 0:
            raise ValueError("all weights are 0")


class Zipf(Distribution, frozen=True, kw_only=True, tag="zipf"):
    """`min` most often, each next whole number as 1 / rank ** exponent, up to `max`."""

    exponent: Annotated[float, msgspec.Meta(gt=0, le=20)]
    min: Length = 1
    max: Length

    def __post_init__(self) -> None:
        ordered(self.min, self.max)
        if self.max - self.min >= MAX_ZIPF:
            raise ValueError(f"a zipf distribution over more than {MAX_ZIPF:,} values")


Drawn = Fixed | Uniform | Lognormal | Quantiles | Empirical | Zipf
Lengths = Length | Drawn
SomeLengths = Annotated[int, msgspec.Meta(ge=1, le=MAX_DRAWN)] | Drawn  # a bare 0 is none


def ordered(low: int, high: int) -> None:
    if low > high:
        raise ValueError(f"min {low} is above max {high}")


def drawer(lengths: Lengths) -> Draw:
    """The function that draws one value; a bare number is a constant."""
    match lengths:
        case int():
            return constant(lengths)
        case Fixed():
            return constant(lengths.value)
        case Uniform():
            return uniform(lengths.min, lengths.max)
        case Lognormal():
            return lognormal(lengths)
        case Quantiles():
            return piecewise(lengths.points)
        case Empirical():
            return weighted(lengths.values, lengths.weights or [1.0] * len(lengths.values))
        case Zipf():
            values = range(lengths.min, lengths.max + 1)
            return weighted(values, zipf_weights(len(values), lengths.exponent))


def constant(value: int) -> Draw:
    return lambda random: value  # noqa: ARG005


def uniform(low: int, high: int) -> Draw:
    span = high - low + 1
    return lambda random: low + int(random.random() * span)


def lognormal(lengths: Lognormal) -> Draw:
    mu = math.log(lengths.median)
    sigma = (math.log(lengths.p95) - mu) / P95
    low, high, cap = lengths.min, lengths.max, math.log(MAX_DRAWN)
    return lambda random: min(max(round(math.exp(min(random.gauss(mu, sigma), cap))), low), high)


def piecewise(points: list[tuple[float, int]]) -> Draw:
    percents = [percent for percent, _ in points]

    def draw(random: Random) -> int:
        percent = random.random() * 100
        right = max(bisect_left(percents, percent), 1)
        (p0, v0), (p1, v1) = points[right - 1], points[right]
        return round(v0 + (v1 - v0) * (percent - p0) / (p1 - p0))

    return draw


def weighted(values: list[int] | range, weights: list[float]) -> Draw:
    cumulative = list(accumulate(weights))
    total = cumulative[-1]
    return lambda random: values[bisect_left(cumulative, (1 - random.random()) * total)]


def zipf_weights(count: int, exponent: float) -> list[float]:
    """1 / rank ** exponent for ranks 1 .. count."""
    return [rank**-exponent for rank in range(1, count + 1)]
