"""A file read into plain values that remembers where each value stood."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from kvplan.errors import KvplanError

T = TypeVar("T")
FieldPath = tuple[str | int, ...]
Locate = Callable[[FieldPath, bool], str]


class Document:
    """Plain values (dict, list, str, int, float, bool, None) and the place of each."""

    __slots__ = ("_locate", "data", "file")

    def __init__(self, data: Any, file: str, locate: Locate) -> None:
        self.data = data
        self.file = file
        self._locate = locate

    def where(self, path: FieldPath = (), *, key: bool = False) -> str:
        """`file:line:column` of the value at path, or of its key; of its parent where it is absent."""
        return self._locate(tuple(path), key)

    def convert(self, kind: type[T], path: FieldPath = ()) -> T:
        """The value at path as a msgspec type; InputError names line, value and what is allowed."""
        value = self.data
        for step in path:
            value = value[step]
        try:
            return msgspec.convert(value, kind, strict=True)
        except msgspec.ValidationError as error:
            from kvplan.refusals import refusal

            raise refusal(self, value, kind, tuple(path), str(error)) from None
        except KvplanError as error:
            if error.where is None:
                raise type(error)(error.problem, where=self.where(path), hint=error.hint) from None
            raise
