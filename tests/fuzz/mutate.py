"""Seeded damage to text and to JSON values, as typing errors and broken tools make it."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

TOKENS = (
    "yes", "no", "on", "null", "~", "1e9", "012", "0x10", "1:30", "-1", "0", "1.5", "NaN", ".inf",
    "99999999999999999999", "''", "[]", "{}", "[1, 2", "&a [*a]", "*a", "<<: {}", "!!python/none 1",
    "--- ", "\t", "\x00", "\u2028", "\U0001d7d9", "true", "- ", ": ", "'", '"', "#", "|", ">", "%", "@",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3, 2**31, 2**63, 10**30, 0.5, -0.0, 1e300, "", "x", "4096", "fp8",
    [], [0], [1, "a"], {}, {"a": 1}, [[[]]], "\ud7ff", "ü" * 50,
)  # fmt: skip


def damaged_text(text: str, random: Random) -> str:
    """One to three edits: cut, double, swap, insert, replace a token."""
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(text) + 1)
        match random.randrange(6):
            case 0:
                text = text[:at] + text[at + random.randint(1, 20) :]
            case 1:
                text = text[:at] + random.choice(TOKENS) + text[at:]
            case 2:
                lines = text.splitlines(keepends=True) or [""]
                line = random.randrange(len(lines))
                lines.insert(random.randrange(len(lines) + 1), lines[line])
                text = "".join(lines)
            case 3:
                lines = text.splitlines(keepends=True) or [""]
                line = random.randrange(len(lines))
                head, colon, _ = lines[line].partition(":")
                lines[line] = f"{head}{colon} {random.choice(TOKENS)}\n"
                text = "".join(lines)
            case 4:
                text = text[:at] + chr(random.randrange(1, 0x2FF)) + text[at + 1 :]
            case 5:
                text = text[: random.randrange(len(text) + 1)]
    return text


def damaged_value(value: Any, random: Random) -> Any:
    """One place of a JSON value replaced, dropped, renamed or doubled."""
    value = json.loads(json.dumps(value))
    for _ in range(random.randint(1, 3)):
        holder = value
        for _ in range(random.randint(0, 3)):
            inner = [each for each in members(holder) if isinstance(each, dict | list) and each]
            if not inner:
                break
            holder = random.choice(inner)
        damage(holder, random)
    return value


def members(holder: Any) -> list[Any]:
    return list(holder.values() if isinstance(holder, dict) else holder)


def damage(holder: Any, random: Random) -> None:
    if isinstance(holder, dict) and holder:
        key = random.choice(sorted(holder))
        match random.randrange(4):
            case 0:
                del holder[key]
            case 1:
                holder[key + random.choice("sx_")] = holder.pop(key)
            case _:
                holder[key] = copy.deepcopy(random.choice(VALUES))
    elif isinstance(holder, list) and holder:
        holder[random.randrange(len(holder))] = copy.deepcopy(random.choice(VALUES))
