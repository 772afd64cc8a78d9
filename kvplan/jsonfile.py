"""Strict reading of JSON: duplicate keys are refused, every error and value has its line."""

from __future__ import annotations

import json
import re
from typing import Any

from kvplan.document import Document, FieldPath
from kvplan.errors import InputError

MAX_DEPTH = 60
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)


def parse_json(text: str, where: str) -> Document:
    """JSON text as a Document; NaN and Infinity are read as floats, as Python's own writer emits them."""
    repeated = False

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        values = dict(pairs)
        repeated = repeated or len(values) != len(pairs)
        return values

    try:
        data = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        problem = "the file is empty" if not text.strip() else syntax_problem(error)
        raise InputError(problem, where=at(text, where, error.pos)) from None
    except RecursionError:
        raise InputError(f"nested deeper than {MAX_DEPTH} levels", where=where) from None
    except ValueError:
        raise InputError("a number has too many digits", where=where) from None
    if repeated:
        raise repeated_key(text, where)
    check_values(data, where)
    return Document(data, where, lambda path, key: find(text, where, path, key))


def syntax_problem(error: json.JSONDecodeError) -> str:
    """The decoder's words in small letters."""
    return f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}"


def check_values(data: Any, where: str) -> None:
    """Refuse what later readers could not walk or print: deep nesting and broken Unicode escapes."""
    level, depth = [data], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise InputError(f"nested deeper than {MAX_DEPTH} levels", where=where)
        texts = [part for part in level if isinstance(part, str)]
        texts += [key for part in level if isinstance(part, dict) for key in part]
        if not "".join(texts).isprintable() and not encodable(texts):
            raise InputError("a text holds half of a Unicode pair", where=where)
        level = [
            child
            for part in level
            if isinstance(part, dict | list)
            for child in (part.values() if isinstance(part, dict) else part)
        ]


def encodable(texts: list[str]) -> bool:
    """Whether all texts can be written as UTF-8."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return False
    return True


def repeated_key(text: str, where: str) -> InputError:
    """The refusal that names the first repeated key and its line."""
    seen: dict[FieldPath, int] = {}
    for path, key_offset, _ in positions(text):
        if path in seen:
            first = text.count("\n", 0, seen[path]) + 1
            problem = f"{path[-1]!r} is given twice (first in line {first})"
            return InputError(problem, where=at(text, where, key_offset))
        seen[path] = key_offset
    raise AssertionError("a repeated key was seen")


def find(text: str, where: str, path: FieldPath, key: bool) -> str:
    """Place of the value (or key) at path; of the deepest part that exists where it does not."""
    best, best_length = len(text) - len(text.lstrip()), 0
    for found, key_offset, value_offset in positions(text):
        length = len(found)
        if length > best_length and found == path[:length]:
            best = key_offset if key and length == len(path) else value_offset
            best_length = length
    return at(text, where, best)


def positions(text: str) -> list[tuple[FieldPath, int, int]]:
    """(path, offset of the key, offset of the value) of every member and element of valid JSON."""
    found: list[tuple[FieldPath, int, int]] = []
    stack: list[str | int | None] = []
    key_offset, expects_key = 0, False
    for match in TOKEN.finditer(text):
        token, offset = match.group(), match.start()
        if token == ",":
            expects_key = advance(stack)
        elif token in "]}":
            stack.pop()
            expects_key = False
        elif token == ":":
            continue
        elif expects_key:
            stack[-1] = json.loads(token)
            key_offset, expects_key = offset, False
        else:
            if stack:
                named = isinstance(stack[-1], str)
                found.append((tuple(stack), key_offset if named else offset, offset))  # type: ignore[arg-type]
            if token in "{[":
                stack.append(None if token == "{" else 0)
                expects_key = token == "{"
    return found


def advance(stack: list[str | int | None]) -> bool:
    """Step to the next element of the open list, or say that the open object needs a key."""
    inner = stack[-1]
    if isinstance(inner, int):
        stack[-1] = inner + 1
        return False
    return True


def at(text: str, where: str, offset: int) -> str:
    """`file:line:column` of an offset."""
    line = text.count("\n", 0, offset) + 1
    return f"{where}:{line}:{offset - text.rfind(chr(10), 0, offset)}"
