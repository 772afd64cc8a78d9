"""What a cell of a sweep's table holds, and how a value that is no scalar is written in one."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec

Kind = Literal["integer", "number", "text", "flag"]
Cell = int | float | str | bool | None

KINDS: dict[type, Kind] = {bool: "flag", int: "integer", float: "number", str: "text"}


class Column(msgspec.Struct, frozen=True):
    """One column: its name, what its cells hold, and what they count."""

    name: str
    kind: Kind
    unit: str = ""


def kind_of(annotation: Any) -> Kind | None:
    """The kind of a field's type; None for lists and mappings."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return kind_of(annotation.__origin__)
    if origin is Literal:
        return "text"
    if origin in (typing.Union, types.UnionType):
        inner = {kind_of(each) for each in typing.get_args(annotation) if each is not type(None)}
        return inner.pop() if len(inner) == 1 else None
    return KINDS.get(annotation)


def kind_of_values(values: Iterable[Any]) -> Kind:
    """The kind that holds all of the values; text where only their JSON does."""
    found = {KINDS.get(type(value), "text") for value in values if value is not None}
    if found == {"integer", "number"}:
        return "number"
    return found.pop() if len(found) == 1 else "text"


def is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, int | float | str)


def cell(value: Any) -> Cell:
    """A value as a cell: scalars as they are, lists and mappings as their JSON."""
    return value if is_scalar(value) else msgspec.json.encode(value).decode()
