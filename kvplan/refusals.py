"""Words for a value that does not fit its type: the line, the value, what is allowed."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from kvplan.document import Document, FieldPath
from kvplan.errors import InputError, did_you_mean

STEP = re.compile(r"\.([^.\[\]`]+)|\[(\d+|\.\.\.)\]")
NOUNS = {
    "int": "an integer",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "null": "null",
    "object": "a mapping",
    "array": "a list",
}
PLACEHOLDERS = {"struct": "mapping", "dict": "mapping", "vartuple": "list", "tuple": "list"}


def refusal(document: Document, value: Any, kind: Any, base: FieldPath, message: str) -> InputError:
    """msgspec's message about value (which stands at base in the document) in kvplan's words."""
    problem, _, place = message.partition(" - at `")
    path = failing_path(value, kind, place.removeprefix("key in ").rstrip("`"))
    known = node_type(kind, path, value)
    field = re.fullmatch(r"Object (contains unknown|missing required) field `(.*)`", problem, re.S)
    if field and field[1] == "contains unknown":
        where = document.where((*base, *path, field[2]), key=True)
        hint = did_you_mean(field[2], field_names(known))
        return InputError(f"unknown field {field[2]!r}", where=where, hint=hint)
    where = document.where((*base, *path))
    if field:
        hint = f"add '{field[2]}: {wording(field_type(known, field[2]))}'"
        return InputError(f"missing field '{field[2]}'", where=where, hint=hint)
    named = called((*base, *path))
    if place.startswith("key in "):
        return InputError(f"key in {named}: {lowered(problem)}", where=where)
    return wrong_value(named, problem, dig(value, path), known, where)


def called(path: FieldPath) -> str:
    """A value by its key; by the way to it where it is one of a list."""
    if not path:
        return "the value"
    if isinstance(path[-1], str):
        return f"'{path[-1]}'"
    steps = (f".{step}" if isinstance(step, str) else f"[{step}]" for step in path)
    return f"'{''.join(steps).removeprefix('.')}'"


def wrong_value(named: str, problem: str, got: Any, known: Any, where: str) -> InputError:
    """The refusal of a value that is there but does not fit its type."""
    choices = allowed(known)
    if problem.startswith("Invalid") and choices:
        listed = f"one of: {', '.join(choices)}"
        hint = did_you_mean(got, choices) if isinstance(got, str) else listed
        return InputError(f"unknown value {shown(got)} of {named}", where=where, hint=hint)
    if problem.startswith("Expected"):
        expected = f"{named} must be {expectation(problem)}"
        quotes = "remove the quotes" if unquotable(problem, got) else None
        return InputError(f"{expected}, got {shown(got)}", where=where, hint=quotes)
    return InputError(lowered(problem), where=where)


def failing_path(value: Any, kind: Any, place: str) -> FieldPath:
    """Path of a msgspec place such as `$.pools[0].size`; its `[...]` is the first key that fails."""
    path: FieldPath = ()
    for match in STEP.finditer(place):
        name, index = match.groups()
        if name is not None:
            path = (*path, name)
        elif index != "...":
            path = (*path, int(index))
        else:
            path = (*path, failing_key(value, kind, path))
    return path


def failing_key(value: Any, kind: Any, path: FieldPath) -> str | int:
    """The first key of the mapping at path whose value alone makes the conversion fail."""
    inner = dig(value, path)
    keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
    for key in keys:
        kept = {key: inner[key]} if isinstance(inner, dict) else [inner[key]]
        try:
            msgspec.convert(replaced(value, path, kept), kind, strict=True)
        except msgspec.ValidationError as error:
            if "[...]" in str(error):
                return key
    return keys[0]


def replaced(value: Any, path: FieldPath, inner: Any) -> Any:
    """A copy of value with the part at path replaced."""
    if not path:
        return inner
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], inner)
    return copy


def dig(value: Any, path: FieldPath) -> Any:
    """The part of value at path, None where a step leads nowhere."""
    for step in path:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return None
    return value


def node_type(kind: Any, path: FieldPath, value: Any) -> Any:
    """msgspec's description of the type that stands at path inside kind."""
    from msgspec import inspect

    known: Any = inspect.type_info(kind)
    for step in path:
        if step in {
            getattr(option, "tag_field", None) for option in getattr(known, "types", [known])
        }:
            return known
        known = narrowed(known, value)
        if isinstance(known, inspect.StructType):
            known = field_type(known, str(step))
        elif isinstance(known, inspect.DictType):
            known = known.value_type
        elif isinstance(known, inspect.ListType | inspect.VarTupleType):
            known = known.item_type
        elif isinstance(known, inspect.TupleType) and isinstance(step, int):
            known = known.item_types[min(step, len(known.item_types) - 1)]
        value = dig(value, (step,))
    return narrowed(known, value)


def narrowed(known: Any, value: Any) -> Any:
    """The alternative of a union that the value was meant for."""
    from msgspec import inspect

    if not isinstance(known, inspect.UnionType):
        return known
    options = [option for option in known.types if not isinstance(option, inspect.NoneType)]
    structs = [option for option in options if isinstance(option, inspect.StructType)]
    if isinstance(value, dict) and structs:
        for option in structs:
            if option.tag_field is not None and value.get(option.tag_field) == option.tag:
                return option
        return structs[0]
    lists = [
        option for option in options if isinstance(option, inspect.ListType | inspect.VarTupleType)
    ]
    if isinstance(value, list) and lists:
        return lists[0]
    return options[0] if len(options) == 1 else known


def field_names(known: Any) -> list[str]:
    """Names that a struct takes in a file."""
    return [field.encode_name for field in getattr(known, "fields", ())]


def field_type(known: Any, name: str) -> Any:
    """Type of one field of a struct, None for an unknown one."""
    return next((field.type for field in known.fields if field.encode_name == name), None)


def allowed(known: Any) -> list[str]:
    """Spellings of a closed choice: enum members, literals or tags; [] for an open type."""
    from msgspec import inspect

    match known:
        case inspect.EnumType():
            return [str(member.value) for member in known.cls]
        case inspect.LiteralType():
            return [str(value) for value in known.values]
        case inspect.UnionType():
            return [word for option in known.types for word in allowed(option)]
        case inspect.StructType() if known.tag is not None:
            return [str(known.tag)]
    return []


def wording(known: Any) -> str:
    """A type as the user would write it: a choice, or a placeholder."""
    choices = allowed(known)
    if choices:
        return "|".join(choices)
    name = type(known).__name__.removesuffix("Type").lower()
    return f"<{PLACEHOLDERS.get(name, name)}>"


def expectation(problem: str) -> str:
    """`Expected `int | null`, got `str`` as "an integer or null"."""
    wanted = problem.removeprefix("Expected ").partition(", got ")[0]
    kinds, _, bound = wanted.strip().partition("` ")
    words = [NOUNS.get(kind, f"'{kind}'") for kind in kinds.strip("`").split(" | ")]
    return " or ".join(words) + (f" {bound}" if bound else "")


def unquotable(problem: str, got: Any) -> bool:
    """Whether a quoted number or boolean stands where a bare one was expected."""
    if not isinstance(got, str) or "got `str`" not in problem:
        return False
    number = re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?", got)
    return bool(number and ("int" in problem or "float" in problem)) or (
        got in {"true", "false"} and "bool" in problem
    )


def shown(value: Any) -> str:
    """A value for a message, cut where it is long."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    words = {None: "null", True: "true", False: "false"}
    if value is None or isinstance(value, bool):
        return words[value]
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…{text[0] if isinstance(value, str) else ''}"


def lowered(message: str) -> str:
    """A message that starts with a small letter."""
    return message[:1].lower() + message[1:]
