"""Quotes and expansions of one shell word: what the script itself sets is filled in, nothing is run."""

from __future__ import annotations

import bisect
import re
from typing import NamedTuple

from kvplan.errors import InputError

MAX_NESTING = 8
MAX_EXPANDED = 4 << 20
UNKNOWN, NOTE = 0xF0000, 0x100000  # private code points: an unknown part, a remark

ORDINARY = re.compile(r"[^\s\\'\"$`;&|()<>]+")
QUOTED_RUN = re.compile(r'[^"\\$`]+')
ANSI_QUOTED = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
DOUBLE_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
BACKQUOTED = re.compile(r"`(?:[^`\\]|\\.)*`", re.DOTALL)
BLANKS = re.compile(r"[ \t\n]+")
NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]", re.ASCII)
PARAMETER = re.compile(
    r"([A-Za-z_]\w*|[0-9]+|[@*#?$!-])(\[[^\]]*\])?(:?[-=+?])?(.*)", re.ASCII | re.DOTALL
)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class Word(NamedTuple):
    """One word of a command, its `file:line:column`, what of it is unknown, what was assumed for it."""

    text: str
    place: str
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Shell:
    """What is known while a script is read: variables, unknown parts, remarks."""

    def __init__(self, variables: dict[str, str] | None = None) -> None:
        self.variables = {name: [value] for name, value in (variables or {}).items()}
        self.conditional: set[str] = set()
        self.exported: dict[str, None] = {}
        self.unknown: list[str] = []
        self.notes: dict[str, int] = {}
        self.expanded = 0

    def placeholder(self, raw: str) -> str:
        """A character that stands for a part nobody can know before the script runs."""
        self.unknown.append(raw)
        return chr(UNKNOWN + min(len(self.unknown) - 1, 0xFFFF))

    def remark(self, text: str) -> str:
        """A character without a spelling that carries a remark along with a value."""
        return chr(NOTE + min(self.notes.setdefault(text, len(self.notes)), 0xFFFF))

    def word(self, text: str, place: str) -> Word:
        """The finished word of a text with placeholders."""
        if not any(ord(letter) >= UNKNOWN for letter in text):
            return Word(text, place)
        remarks = list(self.notes)
        plain: list[str] = []
        unknown: list[str] = []
        notes: list[str] = []
        for letter in text:
            code = ord(letter)
            if NOTE <= code < NOTE + len(remarks):
                notes.append(remarks[code - NOTE])
            elif UNKNOWN <= code < UNKNOWN + len(self.unknown):
                unknown.append(self.unknown[code - UNKNOWN])
                plain.append(unknown[-1])
            else:
                plain.append(letter)
        return Word("".join(plain), place, tuple(unknown), tuple(notes))


class WordReader:
    """A position in a script's text, and the words that start there."""

    def __init__(
        self, text: str, where: str, shell: Shell, *, line: int = 1, column: int = 1, depth: int = 0
    ) -> None:
        self.text = text
        self.where = where
        self.shell = shell
        self.first = (line, column)
        self.depth = depth
        self.at = 0
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def fields(self, *, split: bool = True) -> list[str]:
        """The text of the word here; several where an unquoted variable or an array holds several."""
        fields: list[str] = []
        current: str | None = None
        while self.at < len(self.text):
            letter = self.text[self.at]
            ordinary = ORDINARY.match(self.text, self.at)
            if ordinary:
                self.at = ordinary.end()
                parts = [ordinary[0]]
            elif letter == "\\":
                parts = self.escaped()
            elif letter == "'" or self.text.startswith("$'", self.at):
                parts = [self.single_quoted()]
            elif letter == '"' or self.text.startswith('$"', self.at):
                parts = self.double_quoted()
            elif letter in "$`":
                parts = [" ".join(self.expansion())]
                if split:
                    current = spread(fields, current, parts[0])
                    continue
            elif letter in "<>" and self.text.startswith("(", self.at + 1):
                self.at += 1
                parts = [self.substitution(letter)]
            else:
                break
            if parts:
                joined = [(current or "") + parts[0], *parts[1:]]
                fields += joined[:-1]
                current = joined[-1]
        return fields if current is None else [*fields, current]

    def rest(self) -> str:
        """The whole text as one value, blanks and operators kept."""
        value = ""
        while self.at < len(self.text):
            value += " ".join(self.fields(split=False))
            value += self.text[self.at : self.at + 1]
            self.at += 1
        return value

    def escaped(self) -> list[str]:
        """The character behind a backslash; nothing for a line that goes on."""
        self.at += 2
        letter = self.text[self.at - 1 : self.at]
        return [] if letter == "\n" else [letter]

    def single_quoted(self) -> str:
        """`'…'` as it stands, `$'…'` with its escapes."""
        start = self.at
        if self.text[start] == "$":
            match = ANSI_QUOTED.match(self.text, start)
            if not match:
                raise self.refuse("the quote is never closed", start)
            self.at = match.end()
            return re.sub(r"\\(.)", lambda found: ESCAPES.get(found[1], found[1]), match[1])
        end = self.text.find("'", start + 1)
        if end < 0:
            raise self.refuse("the quote is never closed", start)
        self.at = end + 1
        return self.text[start + 1 : end]

    def double_quoted(self) -> list[str]:
        """`"…"`: one text, or one for each element where it holds `${array[@]}`."""
        start = self.at
        self.at = self.text.index('"', self.at) + 1
        parts, empty = [""], False
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter == '"':
                self.at += 1
                return [] if empty and parts == [""] else parts
            if letter == "\\":
                escaped = self.text[self.at + 1 : self.at + 2]
                self.at += 2
                kept = escaped if escaped in '"\\$`' else f"\\{escaped}"
                parts[-1] += "" if escaped == "\n" else kept
            elif letter in "$`":
                values = self.expansion()
                empty = empty or not values
                parts[-1] += "".join(values[:1])
                parts += values[1:]
            else:
                run = QUOTED_RUN.match(self.text, self.at)
                assert run is not None
                self.at = run.end()
                parts[-1] += run[0]
        raise self.refuse("the quote is never closed", start)

    def expansion(self) -> list[str]:
        """What stands for the `$…` or backquotes here: values, or an unknown part."""
        start = self.at
        if self.text[start] == "`":
            quoted = BACKQUOTED.match(self.text, start)
            if not quoted:
                raise self.refuse("the backquote is never closed", start)
            self.at = quoted.end()
            return [self.shell.placeholder(quoted[0])]
        self.at += 1
        if self.text.startswith("(", self.at):
            return [self.substitution("$")]
        if self.text.startswith("{", self.at):
            raw = "$" + self.bracketed("{", "}")
            return self.spend(self.parameter(raw[2:-1], raw))
        name = NAME.match(self.text, self.at)
        if not name:
            return ["$"]
        self.at = name.end()
        return self.spend(self.variable(name[0], None, f"${name[0]}"))

    def substitution(self, opening: str) -> str:
        """A placeholder for `$(…)`, `<(…)` or `>(…)`."""
        return self.shell.placeholder(opening + self.bracketed("(", ")"))

    def bracketed(self, opened: str, closed: str) -> str:
        """The text from the bracket here to the one that closes it; quotes are passed over."""
        start, depth = self.at, 0
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter == "'" and opened == "(":
                self.single_quoted()
                continue
            if letter == '"' and opened == "(":
                quoted = DOUBLE_QUOTED.match(self.text, self.at)
                if not quoted:
                    break
                self.at = quoted.end()
                continue
            self.at += 2 if letter == "\\" else 1
            depth += (letter == opened) - (letter == closed)
            if not depth:
                return self.text[start : self.at]
        raise self.refuse(f"'{opened}' is never closed", start)

    def parameter(self, inside: str, raw: str) -> list[str]:
        """The value of `${inside}`: a variable, with a default or alternative."""
        match = PARAMETER.fullmatch(inside)
        if not match or (match[4] and not match[3]) or self.depth >= MAX_NESTING:
            return [self.shell.placeholder(raw)]
        name, index, operator, other = match.groups()
        values = self.shell.variables.get(name)
        given = values is not None and (":" not in (operator or "") or any(values))
        if operator is None or (given and "+" not in operator):
            return self.variable(name, index, raw)
        if "?" in operator:
            return [self.shell.placeholder(raw)]
        if "+" in operator and not given:
            return [""]
        value = WordReader(other, self.where, self.shell, depth=self.depth + 1).rest()
        if "+" in operator:
            return [value]
        if "=" in operator:
            self.shell.variables[name] = [value]
        return [self.shell.remark(f"'${name}' is not set here: taken as '{value}'") + value]

    def variable(self, name: str, index: str | None, raw: str) -> list[str]:
        """Value of a variable, or of its elements, or a placeholder where the script does not set it."""
        values = self.shell.variables.get(name)
        if values is None:
            return [self.shell.placeholder(raw)]
        if index in {"[@]", "[*]"}:
            return values
        position = index[1:-1] if index else "0"
        if not position.isdecimal() or int(position[:6]) >= len(values):
            return [self.shell.placeholder(raw)] if index else [""]
        value = values[int(position)]
        if name in self.shell.conditional:
            note = f"'${name}' is set under a condition: taken as '{value}'"
            return [self.shell.remark(note) + value]
        return [value]

    def spend(self, values: list[str]) -> list[str]:
        """Count expanded text, against variables that double themselves."""
        self.shell.expanded += sum(map(len, values))
        if self.shell.expanded > MAX_EXPANDED:
            raise self.refuse("the variables expand to too much text", self.at - 1)
        return values

    def line_column(self, offset: int) -> tuple[int, int]:
        """One-based line and column in the file that this text is part of."""
        row = bisect.bisect_right(self.starts, offset) - 1
        column = offset - self.starts[row] + 1
        return self.first[0] + row, column if row else self.first[1] + column - 1

    def place(self, offset: int) -> str:
        """`file:line:column` of an offset."""
        line, column = self.line_column(min(offset, len(self.text)))
        return f"{self.where}:{line}:{column}"

    def refuse(self, problem: str, offset: int) -> InputError:
        return InputError(problem, where=self.place(offset))


def spread(fields: list[str], current: str | None, value: str) -> str | None:
    """Split an unquoted value at blanks into fields; returns the word that goes on behind it."""
    first, *rest = BLANKS.split(value)
    if not rest:
        return (current or "") + first if first else current
    fields += [part for part in ((current or "") + first, *rest[:-1]) if part]
    return rest[-1] or None
