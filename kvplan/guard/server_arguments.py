"""Server arguments of one launch: words of a command line to values by field name, as the engine reads them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from kvplan.errors import InputError, did_you_mean
from kvplan.guard.server_flags import (
    OLDER_CHOICES,
    VERSION,
    Argument,
    Older,
    arguments,
    find,
    suggestion,
)
from kvplan.guard.shell_values import Word

if TYPE_CHECKING:
    from kvplan.guard.launch import Launch

MAX_REMARKS = 50
MAX_WORDS = 2000
MULTIPLES = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
BINARY_MULTIPLES = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
COUNT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)(Ki|Mi|Gi|Ti|k|M|G|T)")
ROLES = ("sizes", "replays", "memory", "beside", "none")
LISTS = {"ints": "int", "floats": "float", "texts": "text"}
NOUNS = {"int": "an integer", "size": "an integer, or one like 128k or 4Ki", "float": "a number"}


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """Something in a launch that the reader should know, though it does not stop a plan."""

    text: str
    where: str
    hint: str | None = None
    became: str = ""
    """what the plan makes of it: a launch is read on, a flag typed by hand is refused"""

    @property
    def sentence(self) -> str:
        """Where, what, and the next step, in one line."""
        return f"{self.where}: {self.text}{self.became}" + (f"; {self.hint}" if self.hint else "")


class ServerArguments(msgspec.Struct, frozen=True, kw_only=True):
    """What a command line says, by SGLang's field names."""

    sizing: dict[str, Any]
    """arguments that decide a plan"""
    scheduling: dict[str, Any]
    """arguments that decide a replay but no size"""
    unmodelled: dict[str, Any]
    """arguments that take memory which a plan does not model"""
    beside: dict[str, Any]
    """arguments that may change sizes in ways that a plan does not model"""
    ignored: tuple[str, ...]
    """fields that are accepted and have no say in either"""
    unresolved: dict[str, str]
    """fields whose value is known only when the command runs, as it is written"""
    places: dict[str, str]
    """`file:line:column` of each field"""
    warnings: tuple[Remark, ...]


def read_arguments(words: Sequence[Word]) -> ServerArguments:
    """Read the words behind `launch_server`; a value that the engine would refuse is refused."""
    if len(words) > MAX_WORDS:
        raise InputError(f"more than {MAX_WORDS} words", where=words[0].place)
    reader = ArgumentReader(words)
    reader.read()
    by_role: dict[str, dict[str, Any]] = {role: {} for role in ROLES}
    for field, value in reader.values.items():
        by_role[arguments()[field].role][field] = value
    return ServerArguments(
        sizing=by_role["sizes"],
        scheduling=by_role["replays"],
        unmodelled=by_role["memory"],
        beside=by_role["beside"],
        ignored=tuple(by_role["none"]),
        unresolved=reader.unresolved,
        places=reader.places,
        warnings=tuple(reader.warnings),
    )


def notes_of(read: ServerArguments | Launch) -> tuple[str, ...]:
    """What a reader of the plan should know of its launch: remarks, then what no plan models."""
    return (
        *(remark.sentence for remark in read.warnings),
        *(f"'{field}' takes memory that the plan does not model" for field in read.unmodelled),
        *(
            f"'{field}' may change sizes in ways that the plan does not model"
            for field in read.beside
        ),
    )


class ArgumentReader:
    """A position in a command line and what has been read so far."""

    def __init__(self, words: Sequence[Word]) -> None:
        self.words = words
        self.at = 0
        self.values: dict[str, Any] = {}
        self.unresolved: dict[str, str] = {}
        self.places: dict[str, str] = {}
        self.warnings: list[Remark] = []

    def read(self) -> None:
        while self.at < len(self.words):
            word = self.words[self.at]
            self.at += 1
            if is_flag(word):
                self.flag(word)
            elif word.unknown:
                self.warn(word, f"flags in {shortened(word.text)} are known only when it runs")
            elif word.text.isspace():
                self.warn(word, "a backslash before a blank does not continue the line")
            else:
                self.warn(word, f"{shortened(word.text)} belongs to no flag")

    def flag(self, word: Word) -> None:
        """Read one flag with its values."""
        spelling, inline, value = word.text.partition("=")
        found = find(spelling)
        if isinstance(found, Older):
            self.older(word, found, self.taken(word, found.kind, inline, value))
        elif found is None:
            values = [] if inline else self.following()
            hint = suggestion(spelling) if len(self.warnings) < MAX_REMARKS else None
            shown = shortened(" ".join([spelling, *(each.text for each in values)]))
            text = f"SGLang {VERSION} has no such flag: {shown}"
            self.warn(word, text, hint, became=" is left out")
        elif found.argument.kind in {"flag", "switch"}:
            if inline:
                raise self.refuse(word, f"'{spelling}' takes no value, got {shortened(value)}")
            self.store(found.argument, not found.negated, word)
        else:
            values = self.taken(word, found.argument.kind, inline, value)
            self.given(found.argument, word, values)

    def taken(self, word: Word, kind: str, inline: str, value: str) -> list[Word]:
        """The words that are a flag's values."""
        if kind in {"flag", "switch"}:
            return []
        if inline:
            return [word._replace(text=value)]
        if kind in LISTS:
            return self.following()
        values = self.following(1)
        if not values and kind != "optional":
            raise self.refuse(word, f"'{word.text}' needs a value")
        return values

    def following(self, most: int | None = None) -> list[Word]:
        """The words up to the next flag."""
        start = self.at
        while self.at < len(self.words) and not is_flag(self.words[self.at]):
            if most is not None and self.at - start >= most:
                break
            self.at += 1
        return list(self.words[start : self.at])

    def older(self, word: Word, flag: Older, values: list[Word]) -> None:
        """A flag of an earlier version: taken as what it became, with a remark."""
        if flag.field is None:
            self.warn(word, f"'{flag.flag}' is gone in SGLang {VERSION}", became=": left out")
            return
        argument = arguments()[flag.field]
        self.warn(word, f"'{flag.flag}' is '{argument.flags[0]}' in SGLang {VERSION}")
        if flag.kind == "flag":
            self.store(argument, flag.value or True, word)
        else:
            self.given(argument, word, values)

    def given(self, argument: Argument, word: Word, values: list[Word]) -> None:
        """Store a flag's value, or note that it is unknown before the command runs."""
        unknown = [each.text for each in values if each.unknown]
        if unknown:
            self.unresolved[argument.field] = " ".join(each.text for each in values)
            self.values.pop(argument.field, None)
            self.places[argument.field] = word.place
            raw = shortened(" ".join(unknown))
            self.warn(word, f"the value of '{argument.flags[0]}' is known only when it runs: {raw}")
            return
        if argument.kind in LISTS:
            self.store(argument, [self.convert(argument, each) for each in values], word)
        else:
            value = self.convert(argument, values[0]) if values else None
            self.store(argument, value, word)
        for note in dict.fromkeys(note for each in values for note in each.notes):
            self.warn(word, note)

    def store(self, argument: Argument, value: Any, word: Word) -> None:
        """Keep a value; as in the engine the last of several counts."""
        previous = self.values.get(argument.field, value)
        if previous != value:
            self.warn(word, f"'{argument.flags[0]}' is given twice: {str(value)[:60]} counts")
        self.unresolved.pop(argument.field, None)
        self.values[argument.field] = value
        self.places[argument.field] = word.place

    def convert(self, argument: Argument, word: Word) -> Any:
        """One value of the argument's kind."""
        kind, text = LISTS.get(argument.kind, argument.kind), word.text
        if kind == "json":
            return self.json(argument, word)
        if kind in {"text", "optional"}:
            return self.choice(argument, word)
        number = read_number(kind, text)
        if number is None:
            raise self.refuse(
                word, f"'{argument.flags[0]}' must be {NOUNS[kind]}, got {shortened(text)}"
            )
        return number

    def json(self, argument: Argument, word: Word) -> Any:
        """A value that the engine reads as JSON."""
        from kvplan.jsonfile import parse_json

        try:
            return parse_json(word.text, word.place).data
        except InputError as error:
            raise self.refuse(word, f"value of '{argument.flags[0]}' is {error.problem}") from None

    def choice(self, argument: Argument, word: Word) -> str:
        """A text value; where the engine has a list of choices it must be one of them."""
        if not argument.choices or word.text in argument.choices:
            return word.text
        renamed = OLDER_CHOICES.get(argument.field, {})
        if word.text in renamed:
            new = renamed[word.text]
            became = f"is '{new}'" if new else "is gone"
            flag = argument.flags[0]
            self.warn(word, f"'{word.text}' of '{flag}' {became} in SGLang {VERSION}")
            return new or word.text
        begun = [choice for choice in argument.choices if choice.startswith(word.text)]
        hint = did_you_mean(word.text, begun or argument.choices)
        problem = f"unknown value {shortened(word.text)} of '{argument.flags[0]}'"
        raise self.refuse(word, problem, hint)

    def warn(self, word: Word, text: str, hint: str | None = None, became: str = "") -> None:
        if len(self.warnings) < MAX_REMARKS:
            remark = Remark(text=text, where=word.place, hint=hint, became=became)
            self.warnings.append(remark)

    def refuse(self, word: Word, problem: str, hint: str | None = None) -> InputError:
        return InputError(problem, where=word.place, hint=hint)


def is_flag(word: Word) -> bool:
    """Whether the engine's parser would take a word for a flag; a negative number is a value."""
    text = word.text
    if not text.startswith("-") or text == "-" or " " in text.partition("=")[0]:
        return False
    return not re.fullmatch(r"-(\d+\.?\d*|\.\d+)", text)


def read_number(kind: str, text: str) -> int | float | None:
    """A number as Python's int() and float() read it, with k, M, Ki, Mi for sizes; None if it is none."""
    try:
        if kind == "size" and (match := COUNT.fullmatch(text.strip())):
            return count(*match.groups())
        if len(text) > 40:
            return None
        number = float(text) if kind == "float" else int(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def count(number: str, unit: str) -> int | None:
    """`25.6k` as 25600, `4Ki` as 4096; fractions of a binary unit are none."""
    if unit in BINARY_MULTIPLES:
        return None if "." in number else int(number) * BINARY_MULTIPLES[unit]
    from decimal import Decimal

    return int(Decimal(number) * MULTIPLES[unit])


def shortened(text: str) -> str:
    """A value for a message, cut where it is long."""
    return repr(text) if len(text) <= 60 else f"{text[:57]!r}…"
