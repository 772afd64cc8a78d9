"""The server arguments that an SGLang log prints: `server_args=ServerArgs(…)` or `server_args={…}`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from kvplan.guard.server_flags import arguments, flag_of, older

MAX_VALUE = 4000
FIELD = re.compile(r"\s*(?:(\w+)=|'(\w+)': ?)")
QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}


def read_server_args(message: str) -> dict[str, Any]:
    """Arguments by 0.5.23's field names; values that are no plain literals are left out."""
    start = re.search(r"server_args=(?:ServerArgs\(|\{)", message)
    if not start:
        return {}
    read: dict[str, Any] = {}
    for part in parts(message, start.end()):
        field = FIELD.match(part)
        if not field:
            continue
        name = current_name(field[1] or field[2])
        literal = part[field.end() :].strip()
        if name and len(literal) <= MAX_VALUE:
            try:
                read[name] = ast.literal_eval(literal)
            except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
                continue
    return read


def sizing_arguments(read: dict[str, Any]) -> dict[str, Any]:
    """Those of the arguments that decide a plan, with their values as the engine resolved them."""
    table = arguments()
    return {
        name: value
        for name, value in read.items()
        if table[name].role == "sizes" and value is not None
    }


def current_name(name: str) -> str | None:
    """The field that 0.5.23 has for a field of any version, None where it has none."""
    if name in arguments():
        return name
    renamed = older().get(flag_of(name))
    return renamed.field if renamed and renamed.value is None else None


def parts(text: str, at: int) -> Iterator[str]:
    """The comma-separated parts up to the bracket that closes the list."""
    begin, depth = at, 0
    while at < len(text):
        letter = text[at]
        quoted = QUOTED.match(text, at) if letter in "'\"" else None
        if quoted:
            at = quoted.end()
            continue
        step = BRACKETS.get(letter, 0)
        if step < 0 and not depth:
            break
        depth += step
        if letter == "," and not depth:
            yield text[begin:at]
            begin = at + 1
        at += 1
    yield text[begin:at]
