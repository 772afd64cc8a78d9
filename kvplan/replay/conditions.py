"""What makes a replay fail: `retraction`, `rejection`, `occupancy>0.95`, `wait_p99>2`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import msgspec

from kvplan.errors import InputError, did_you_mean
from kvplan.replay.result import ReplayResult
from kvplan.units import NS_PER_S

FIGURES: dict[str, Callable[[ReplayResult], float]] = {
    "retraction": lambda result: result.num_retractions,
    "rejection": lambda result: result.num_rejected,
    "occupancy": lambda result: result.peak_occupancy,
    # seconds from arrival to the first part of the prompt
    "wait_p50": lambda result: result.wait_ns.p50 / NS_PER_S,
    "wait_p95": lambda result: result.wait_ns.p95 / NS_PER_S,
    "wait_p99": lambda result: result.wait_ns.p99 / NS_PER_S,
    "wait_max": lambda result: result.wait_ns.max / NS_PER_S,
}
COUNTED = ("retraction", "rejection")  # one is too many unless a bound is given
WAITS = tuple(name for name in FIGURES if name.startswith("wait"))
UNITS = {"%": 0.01, "s": 1.0, "ms": 0.001}
NAME = re.compile(r"[a-z_0-9]+")
BOUND = re.compile(r"(?:\s*>\s*(?P<bound>[0-9.]+)\s*(?P<unit>%|ms|s)?)?")


class Condition(msgspec.Struct, frozen=True):
    """A figure and the value that it must not exceed."""

    name: str
    bound: float = 0.0

    def __str__(self) -> str:
        return f"{self.name}>{self.bound:g}" if self.bound else self.name

    def fails(self, result: ReplayResult) -> bool:
        """Whether a replay exceeds the bound."""
        return FIGURES[self.name](result) > self.bound


DOES_NOT_FIT = tuple(Condition(name) for name in COUNTED)


def asked_conditions(texts: Iterable[str]) -> tuple[Condition, ...]:
    """What makes a run fail: what is written, and any retraction or rejection unless one is."""
    found = read_conditions(texts)
    named = any(condition.name in COUNTED for condition in found)
    return found if named else (*DOES_NOT_FIT, *found)


def read_conditions(texts: Iterable[str]) -> tuple[Condition, ...]:
    """Conditions as written, each alone or several joined by commas; InputError for another."""
    return tuple(read_condition(part.strip()) for text in texts for part in text.split(","))


def read_condition(text: str) -> Condition:
    name = (NAME.match(text) or [text])[0]
    if name not in FIGURES:
        raise InputError(f"unknown condition '{text}'", hint=did_you_mean(name, FIGURES))
    found = BOUND.fullmatch(text, len(name))
    if found is None:
        raise InputError(f"cannot read the bound of '{text}'", hint=example(name))
    unit, bound = found["unit"], bound_of(found, text)
    if name == "occupancy" and (not 0 < bound < 1 or unit not in (None, "%")):
        raise InputError(f"'{text}' needs a share of the pool below 1", hint=example(name))
    if name in COUNTED and unit is not None:
        raise InputError(f"'{text}' counts {name}s", hint=example(name))
    if name in WAITS and (found["bound"] is None or unit == "%"):
        raise InputError(f"'{text}' needs a time in s or ms", hint=example(name))
    return Condition(name, bound)


def example(name: str) -> str:
    """How a condition on a figure is written."""
    bound = "0.95" if name == "occupancy" else "2s" if name in WAITS else "3"
    return f"for example {name}>{bound}"


def bound_of(found: re.Match[str], text: str) -> float:
    """The number behind the name, 0 without one."""
    if found["bound"] is None:
        return 0.0
    try:
        bound = float(found["bound"])
    except ValueError:
        raise InputError(f"'{found['bound']}' in '{text}' is no number") from None
    return bound * UNITS[found["unit"]] if found["unit"] else bound
