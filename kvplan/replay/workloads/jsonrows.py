"""Rows of a JSON-lines workload: one object a line, decoded by type, refusals with line and value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from kvplan.replay.workloads.fitting import Strangers
from kvplan.replay.workloads.rows import BadRow, Row, shown
from kvplan.replay.workloads.stream import Source, line_batches
from kvplan.replay.workloads.tally import Tally

T = TypeVar("T", bound=msgspec.Struct)
MISSING = re.compile(r"missing required field `([^`]*)`")
WANTED = re.compile(r"Expected `([^`]*)`([^,]*)")
HALF_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u|$)")
WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "object": "an object",
    "array": "a list",
}


def json_rows(
    source: Source, tally: Tally, kind: type[T], parse: Callable[[int, T], Row | None], format: str
) -> Iterator[Row]:
    """Every line of a file of a format, decoded as `kind`, through `parse(line number, value)`.

    A parser answers None for a row that it has counted as dropped.
    """
    decode = msgspec.json.Decoder(kind).decode
    strangers = Strangers(format, kind.__struct_fields__)
    for first, lines in line_batches(source):
        suspected = strangers.suspected(lines)
        for line, text in enumerate(lines, first):
            if not text or text.isspace():
                continue
            tally.read += 1
            try:
                try:
                    value = decode(text)
                    if suspected:
                        strangers.refuse(text)
                except (msgspec.MsgspecError, RecursionError) as error:
                    raise undecoded(error, text) from None
                row = parse(line, value)
            except BadRow as error:
                tally.bad(error, source.where(line))
            else:
                if row is not None:
                    yield row


def undecoded(error: Exception, text: bytes) -> BadRow:
    """What is wrong with a line that does not decode, with the value that was found."""
    if isinstance(error, RecursionError):
        return BadRow("nested too deep")
    if isinstance(error, msgspec.ValidationError):
        return BadRow(misfit(str(error), text))
    return BadRow(f"not JSON ({malformed(str(error), text)}): {excerpt(text)}")


def malformed(message: str, text: bytes) -> str:
    """A decoder's refusal of what is no JSON in words."""
    if "truncated" not in message:
        return message.split(": ", 1)[-1]
    # msgspec takes a text that ends in half a surrogate pair for a line that ends early
    half = HALF_PAIR.search(text)
    return f"half a character: {half.group().decode()}" if half else "the line ends early"


def misfit(message: str, text: bytes) -> str:
    """A decoder's refusal of well-formed JSON in words: the key, its value, what was expected."""
    missing = MISSING.search(message)
    if missing:
        return f"the key '{missing.group(1)}' is missing: {excerpt(text)}"
    problem, _, place = message.partition(" - at `$")
    name = clipped(place.removeprefix(".").removesuffix("`"))
    wanted = WANTED.match(problem)
    if not name:
        return f"{f'not {in_words(wanted)}' if wanted else lowered(problem)}: {excerpt(text)}"
    value = shown(value_at(text, name))
    if wanted is None:
        return f"'{name}' is {value}: {lowered(problem)}"
    return f"'{name}' is {value}, not {in_words(wanted)}"


def in_words(wanted: re.Match[str]) -> str:
    """`int | null` >= 0` as "a whole number or null >= 0"."""
    kinds = " or ".join(WORDS.get(kind, kind) for kind in wanted.group(1).split(" | "))
    return kinds + wanted.group(2)


def value_at(text: bytes, place: str) -> Any:
    """The value at a place such as `hash_ids[3]`, as far down as it exists."""
    try:
        value: Any = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return excerpt(text)
    for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", place):
        try:
            value = value[int(index)] if index else value[name]
        except (LookupError, TypeError):
            break
    return value


def excerpt(text: bytes) -> str:
    return shown(text[:80].decode(errors="replace"))


def lowered(text: str) -> str:
    return clipped(text[:1].lower() + text[1:])


def clipped(text: str, limit: int = 100) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
