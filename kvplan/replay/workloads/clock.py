"""Times of workload files as whole nanoseconds: wall clocks, decimal seconds, JSON numbers."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

from kvplan.replay.workloads.rows import INCONSISTENT, MAX_TIME_NS, OUT_OF_RANGE, BadRow, shown

NS_PER = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
SECOND = NS_PER["s"]
SCALE = [10 ** (9 - digits) for digits in range(10)]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:", re.ASCII)
ZONE = r"Z|[+-](?:(?:0\d|1[0-3]):?[0-5]\d|14:?00)"  # none is farther than 14 hours
REST = re.compile(rf"([0-5]\d)(?:\.(\d{{1,9}}))?({ZONE})?", re.ASCII)
DECIMAL = re.compile(r"(\d{1,12})(?:\.(\d{0,30}))?", re.ASCII)
FLOAT = re.compile(r"[+-]?(?:[\d.]+(?:e[+-]?\d+)?|nan|inf|infinity)", re.ASCII | re.IGNORECASE)


class WallClock:
    """Reads `2023-11-16 18:15:46.6805900`, `…+00:00`, `2024-10-15T12:00:00.269Z`.

    Neighbours in a trace mostly share their second and their spelling, so both are remembered.
    Without a zone the time is taken as UTC: only differences count, and times with and without a
    zone do not mix.
    """

    def __init__(self) -> None:
        self.zoned: bool | None = None
        self.zone = ""
        self.second = ""
        self.minute = ""
        self.second_ns = self.minute_ns = 0
        self.length = self.scale = 0
        self.end: int | None = None

    def ns(self, text: str) -> int:
        """Nanoseconds since 1970; BadRow for what is no date and time."""
        if (
            text[:20] == self.second
            and len(text) == self.length
            and text.endswith(self.zone)
            and (digits := text[20 : self.end]).isdecimal()
            and digits.isascii()
        ):
            return self.second_ns + int(digits) * self.scale
        return self.unlike(text)

    def unlike(self, text: str) -> int:
        """A time in another second or spelling than the one before, which it replaces."""
        if text[:17] != self.minute:
            self.minute_ns = minute_ns(text)
            self.minute = text[:17]
        match = REST.fullmatch(text, 17)
        if match is None:
            raise not_a_time(text)
        second, digits, zone = match.group(1), match.group(2) or "", match.group(3) or ""
        if self.zoned is None:
            self.zoned = bool(zone)
        if self.zoned != bool(zone):
            raise BadRow(
                f"{shown(text)} has {'a' if zone else 'no'} time zone, unlike the first time",
                reason=INCONSISTENT,
                hint="two traces joined in one file? replay them one by one",
            )
        self.second = text[:20] if digits else ""
        self.second_ns = self.minute_ns + int(second) * SECOND - zone_ns(zone)
        self.length, self.scale = len(text), SCALE[len(digits)]
        self.zone, self.end = zone, -len(zone) or None
        return self.second_ns + int(digits or "0") * self.scale


def minute_ns(text: str) -> int:
    """Nanoseconds from 1970 to the start of the minute that a time is in."""
    if MINUTE.match(text):
        try:
            start = datetime.fromisoformat(text[:16]).replace(tzinfo=UTC)
        except ValueError:
            raise not_a_time(text) from None
        since = start - EPOCH
        return checked_time((since.days * 86_400 + since.seconds) * SECOND, text)
    raise not_a_time(text)


def zone_ns(zone: str) -> int:
    """The offset of `Z`, `+02:00` or `-0530` in nanoseconds."""
    digits = zone[1:].replace(":", "")
    if not digits:
        return 0
    offset = (int(digits[:2]) * 60 + int(digits[2:])) * 60 * SECOND
    return -offset if zone[0] == "-" else offset


def decimal_ns(text: str, unit_ns: int, column: str) -> int:
    """A decimal number of `unit_ns` nanoseconds, exactly; what lies below 1 ns is cut."""
    match = DECIMAL.fullmatch(text.strip())
    if match is None:
        try:
            value = float(text if FLOAT.fullmatch(text.strip()) else "")
        except ValueError:
            raise BadRow(f"'{column}' is {shown(text)}, not a number") from None
        return number_ns(value, unit_ns, column)
    whole, fraction = match.group(1), match.group(2) or ""
    ns = int(whole) * unit_ns + int(fraction or "0") * unit_ns // 10 ** len(fraction)
    return checked_time(ns, text)


def number_ns(value: float, unit_ns: int, column: str) -> int:
    """A JSON number of `unit_ns` nanoseconds, rounded to whole ones."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise BadRow(f"'{column}' is {value}, not a time", reason=OUT_OF_RANGE)
        if not value.is_integer():
            return checked_time(round(value * unit_ns), value)
    return checked_time(int(value) * unit_ns, value)


def checked_time(ns: int, given: object) -> int:
    """The time itself; BadRow where it lies before zero or beyond 146 years."""
    if 0 <= ns <= MAX_TIME_NS:
        return ns
    problem = "is negative" if ns < 0 else "is too large"
    raise BadRow(f"the time {shown(given)} {problem}", reason=OUT_OF_RANGE)


def not_a_time(text: str) -> BadRow:
    return BadRow(f"{shown(text)} is no date and time", hint="like 2023-11-16 18:15:46.6805900")
