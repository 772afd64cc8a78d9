"""What makes a replay fail: `retraction`, `rejection`, `occupancy>0.95`."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from kvplan.errors import InputError, did_you_mean
from kvplan.replay.result import ReplayResult

NAMES = ("retraction", "rejection", "occupancy")
BOUND = re.compile(r"(?P<name>[a-z]+)(?:\s*>\s*(?P<bound>[0-9.]+)\s*(?P<percent>%)?)?")


class Condition(msgspec.Struct, frozen=True):
    """A figure and the value that it must not exceed."""

    name: str
    bound: float = 0.0

    def __str__(self) -> str:
        return f"{self.name}>{self.bound:g}" if self.bound else self.name

    def value(self, result: ReplayResult) -> float:
        """The figure of a replay."""
        match self.name:
            case "retraction":
                return result.num_retractions
            case "rejection":
                return result.num_rejected
        return result.peak_occupancy

    def fails(self, result: ReplayResult) -> bool:
        """Whether a replay exceeds the bound."""
        return self.value(result) > self.bound


DOES_NOT_FIT = (Condition("retraction"), Condition("rejection"))


def read_conditions(texts: Iterable[str]) -> tuple[Condition, ...]:
    """Conditions as written, each alone or several joined by commas; InputError for another."""
    return tuple(read_condition(part.strip()) for text in texts for part in text.split(","))


def read_condition(text: str) -> Condition:
    found = BOUND.fullmatch(text)
    if found is None or found["name"] not in NAMES:
        name = found["name"] if found else text
        raise InputError(f"unknown condition '{text}'", hint=did_you_mean(name, NAMES))
    bound = bound_of(found, text)
    if found["name"] == "occupancy" and not 0 < bound < 1:
        raise InputError(
            f"'{text}' needs a share of the pool below 1", hint="for example occupancy>0.95"
        )
    return Condition(found["name"], bound)


def bound_of(found: re.Match[str], text: str) -> float:
    """The number behind the name, 0 without one."""
    if found["bound"] is None:
        return 0.0
    try:
        bound = float(found["bound"])
    except ValueError:
        raise InputError(f"'{found['bound']}' in '{text}' is no number") from None
    return bound / 100 if found["percent"] else bound
