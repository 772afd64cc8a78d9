"""Values and changes in words, for messages."""

from __future__ import annotations

import json
from typing import Any

LONGEST = 48


def count(value: float) -> str:
    """A number with thousands apart, without a fraction where it has none."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.6g}"


def signed(value: float) -> str:
    """A change with its sign."""
    return f"+{count(value)}" if value > 0 else f"−{count(-value)}"


def percent(before: float, after: float) -> str:
    """A change as a share of the value before; `new` and `gone` where a side has none."""
    if not before:
        return "new" if after else "±0%"
    if not after:
        return "gone"
    change = 100 * (after - before) / before
    sign = "+" if change >= 0 else "−"
    if abs(change) < 0.001:
        return f"{sign}<0.001%"
    return f"{sign}{abs(change):,.1f}%" if abs(change) >= 0.1 else f"{sign}{abs(change):.1g}%"


def short(value: Any) -> str:
    """A value of a launch, cut where it is long; a dash where it is left open."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        text = json.dumps(value, ensure_ascii=False)
    else:
        text = value if isinstance(value, str) else number(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def argument(value: Any, settled: Any, origin: str | None) -> str:
    """A server argument; where it is left open what became of it, and by whom."""
    if value is not None or settled is None:
        return short(value)
    return f"{short(settled)} ({(origin or '').partition(' (')[0]})"


def number(value: float) -> str:
    """An integer with thousands apart from five digits on, a fraction as it is written."""
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else f"{value:g}"


def printable(text: str) -> str:
    """Text that every format can write: what is no Unicode or a control character is spelled out."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
