"""`--set key=value`: dotted keys over a document, with the same strict scalars as its file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from kvplan.document import Document, FieldPath
from kvplan.errors import InputError
from kvplan.scalars import ScalarTrap, read_scalar

STRUCTURED = ("[", "{", '"', "'")


class Override(msgspec.Struct, frozen=True):
    """One `--set`: the dotted key it sets, the value, and the words of the command line."""

    key: str
    value: Any
    text: str


def parse_override(text: str) -> Override:
    """Read `key.inner=value`; the value is a YAML scalar, a quoted text, or `[…]` / `{…}`."""
    key, equals, value = text.partition("=")
    place = origin(text)
    if not text.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise InputError("not valid text", where=place)
    if not equals:
        raise InputError("an override needs the form key=value", where=place)
    key = key.strip()
    if not all(key.split(".")):
        raise InputError(f"{key!r} is not a dotted key", where=place)
    return Override(key, parse_value(value.strip(), place), text)


def parse_value(text: str, place: str) -> Any:
    """One value of the command line as YAML reads it; type conversion comes later."""
    if text.startswith(STRUCTURED):
        from kvplan.yamlfile import parse

        return parse(text, place).data
    try:
        return read_scalar(text)
    except ScalarTrap as trap:
        raise InputError(trap.problem, where=place, hint=trap.hint) from None


def apply(document: Document, overrides: Iterable[Override]) -> Document:
    """The document with the overrides set; errors about an overridden value name its `--set`."""
    data, sources = document.data, dict[FieldPath, str]()
    for override in overrides:
        path = along(data, override)
        if path in sources:
            raise InputError(
                f"'{override.key}' is set twice",
                where=origin(override.text),
                hint=f"the other is '{sources[path]}'",
            )
        data = with_value(data, path, override.value)
        sources[path] = override.text

    def locate(path: FieldPath, key: bool) -> str:
        for length in range(len(path), 0, -1):
            if path[:length] in sources:
                return origin(sources[path[:length]])
        inner = next((text for whole, text in sources.items() if whole[: len(path)] == path), None)
        return (
            origin(inner)
            if inner and absent(document.data, path)
            else document.where(path, key=key)
        )

    return Document(data, document.file, locate)


def along(data: Any, override: Override) -> FieldPath:
    """The override's path with list positions as integers; InputError where it leads nowhere."""
    path: FieldPath = ()
    for step in override.key.split("."):
        if isinstance(data, list):
            if not (step.isascii() and step.isdecimal() and int(step[:9]) < len(data)):
                raise InputError(
                    f"'{step}' is not a position in a list of {len(data)}",
                    where=origin(override.text),
                )
            path, data = (*path, int(step)), data[int(step)]
        elif data is None or isinstance(data, dict):
            path, data = (*path, step), (data or {}).get(step)
        else:
            above = ".".join(map(str, path))
            raise InputError(f"'{above}' is a value, it has no fields", where=origin(override.text))
    return path


def with_value(data: Any, path: FieldPath, value: Any) -> Any:
    """A copy of data with the value at path set; mappings on the way are made where they are missing."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        return [*data[:step], with_value(data[step], rest, value), *data[step + 1 :]]
    return {**(data or {}), step: with_value((data or {}).get(step), rest, value)}


def absent(data: Any, path: FieldPath) -> bool:
    """Whether the file itself has nothing at path."""
    for step in path:
        try:
            data = data[step]
        except (LookupError, TypeError):
            return True
    return False


def origin(text: str) -> str:
    """Where an override stands, for messages."""
    return f"--set {text}"
