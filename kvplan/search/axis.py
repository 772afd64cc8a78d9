"""One input's values out of a sweep file: listed, ranged, or single."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec

from kvplan.document import Document, FieldPath
from kvplan.errors import InputError
from kvplan.search.kinds import Cell, Kind, cell, is_scalar, kind_of, kind_of_values
from kvplan.search.sweep_spec import Number, Values

MAX_VALUES = 100_000


class Axis(msgspec.Struct, frozen=True):
    """One input of a sweep; the file's order is the order of its values."""

    name: str
    section: str  # the part of the file that it stands in
    kind: Kind
    values: tuple[Any, ...]
    cells: tuple[Cell, ...]
    places: tuple[FieldPath, ...]  # of each value in the file

    @property
    def varies(self) -> bool:
        return len(self.values) > 1


def make_axis(
    name: str, section: str, given: Any, document: Document, path: FieldPath, plain: Any
) -> Axis:
    """The values of a field whose own type is `plain`. InputError with the line of a bad one."""
    if isinstance(given, Values) and given.values is None:
        values = ranged(given, name, document, path, plain)
        places: tuple[FieldPath, ...] = (path,) * len(values)
    else:
        values, places = listed(given, name, document, path, plain)
    if len(values) > MAX_VALUES:
        raise InputError(
            f"'{name}' has {len(values):,} values, at most {MAX_VALUES:,} are swept",
            where=document.where(path),
        )
    cells = tuple(
        cell(value if is_scalar(value) else at_path(document.data, place))
        for value, place in zip(values, places, strict=True)
    )
    check_distinct(name, cells, document, places)
    kind = kind_of(plain) or kind_of_values(cells)
    return Axis(name, section, kind, values, cells, places)


def at_path(data: Any, path: FieldPath) -> Any:
    """A value as the file has it."""
    for step in path:
        data = data[step]
    return data


def listed(
    given: Any, name: str, document: Document, path: FieldPath, plain: Any
) -> tuple[tuple[Any, ...], tuple[FieldPath, ...]]:
    """Values that stand in the file one by one, and where."""
    if isinstance(given, Values):
        if given != Values(values=given.values):
            raise InputError(
                f"'{name}' has listed values and a range",
                where=document.where(path),
                hint="keep one of them",
            )
        values, path = given.values or (), (*path, "values")
    elif isinstance(given, tuple) and not is_one_value(given, name, document, path, plain):
        values = given
    else:
        return (given,), (path,)
    return values, tuple((*path, index) for index in range(len(values)))


def is_one_value(
    given: Sequence[Any], name: str, document: Document, path: FieldPath, plain: Any
) -> bool:
    """Whether a list is one value of a field that takes lists, not several values."""
    if plain is Any or kind_of(plain) is not None:
        return False
    numbers = [isinstance(item, int) for item in given]
    if any(numbers) and not all(numbers):
        raise InputError(
            f"'{name}' mixes numbers and lists",
            where=document.where(path),
            hint="one value is [1, 2, 4]; several are [[1, 2], [1, 2, 4]]",
        )
    return any(numbers)


def check_distinct(
    name: str, cells: Sequence[Cell], document: Document, places: Sequence[FieldPath]
) -> None:
    """Refuse a value that is given twice."""
    seen: set[tuple[type, Cell]] = set()
    for value, place in zip(cells, places, strict=True):
        if (type(value), value) in seen:
            shown = "null" if value is None else value
            raise InputError(f"'{name}' has {shown} twice", where=document.where(place))
        seen.add((type(value), value))


def ranged(
    given: Values[Any], name: str, document: Document, path: FieldPath, plain: Any
) -> tuple[Any, ...]:
    """The values of `{from, to, step}` or `{from, to, factor}`, both ends included."""
    where = document.where(path)
    if kind_of(plain) not in (None, "integer", "number"):
        raise InputError(f"'{name}' takes no numbers, so it has no range", where=where)
    if given.start is None or given.stop is None or (given.step is None) == (given.factor is None):
        raise InputError(
            f"the range of '{name}' is not complete",
            where=where,
            hint="write {from: 1, to: 9, step: 2}, {from: 1, to: 64, factor: 2} or {values: [1, 9]}",
        )
    if given.factor is not None:
        numbers = multiplied(given.start, given.stop, given.factor, where)
    else:
        assert given.step is not None
        numbers = stepped(given.start, given.stop, given.step, where)
    kept: tuple[Any, ...] = Document(numbers, document.file, lambda *_: where).convert(
        tuple[plain, ...]
    )
    return kept


def stepped(start: Number, stop: Number, step: Number, where: str) -> list[Number]:
    """start, start + step, … up to stop; decimal, so that 0.8 + 0.02 is 0.82."""
    first, last, distance = (Decimal(str(number)) for number in (start, stop, step))
    if distance <= 0 or last < first:
        raise InputError(
            f"a range from {start} to {stop} by {step} is empty", where=where, hint="steps go up"
        )
    count = int((last - first) / distance) + 1
    if count > MAX_VALUES:
        raise InputError(
            f"a range of more than {MAX_VALUES:,} values, which are the most that are swept",
            where=where,
        )
    return [plain_number(first + index * distance) for index in range(count)]


def multiplied(start: Number, stop: Number, factor: Number, where: str) -> list[Number]:
    """start, start × factor, … up to stop."""
    number, last, by = (Decimal(str(number)) for number in (start, stop, factor))
    if number <= 0 or by < Decimal("1.001") or last < number:
        raise InputError(
            f"a range from {start} to {stop} by a factor of {factor} is empty",
            where=where,
            hint="start above 0; the factor is at least 1.001",
        )
    numbers = []
    while number <= last:
        numbers.append(plain_number(number))
        number *= by
    return numbers


def plain_number(number: Decimal) -> Number:
    """An integer where it is one."""
    return int(number) if number == number.to_integral_value() else float(number)
