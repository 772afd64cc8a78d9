"""The commands of a shell script as words; variables that the script sets are filled in, nothing is run."""

from __future__ import annotations

import re

from kvplan.errors import InputError
from kvplan.guard.shell_values import MAX_NESTING, NAME, Shell, Word, WordReader

BLANK = re.compile(r"(?:[ \t\r\v\f]|\\\n)+")
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]\s]*\])?(\+?)=", re.ASCII)
REDIRECTION = re.compile(r"(?:[0-9]*|&)(<<<|<<-?|<>|<&|>&|>>|>\||<|>)(?!\()")
HEREDOC_END = re.compile(r"[ \t]*(['\"\\]?)([\w.-]+)['\"]?")
SERVER_VARIABLE = re.compile(r"(?:SGLANG|IN_BATCH)_[A-Z0-9_]+")
DECLARING = frozenset({"export", "declare", "local", "readonly", "typeset"})
OPENING = frozenset({"if", "while", "until", "for", "case", "select"})
CLOSING = frozenset({"fi", "done", "esac"})
KEYWORDS = (
    OPENING | CLOSING | {"then", "else", "elif", "do", "in", "{", "}", "!", "time", "function"}
)


def read_commands(
    text: str, where: str, shell: Shell | None = None, *, line: int = 1, column: int = 1
) -> list[list[Word]]:
    """The words of each simple command of a script that stands at line and column of its file."""
    unified = text.replace("\r\n", "\n")
    return Script(unified, where, shell or Shell(), line=line, column=column).commands()


class Script(WordReader):
    """A script read command by command."""

    condition = 0

    def commands(self) -> list[list[Word]]:
        """All commands that have words; assignments alone only set variables."""
        self.found: list[list[Word]] = []
        self.heredocs: list[tuple[str, bool]] = []
        while self.at < len(self.text):
            words = self.command()
            if words:
                self.found.append(words)
        return self.found

    def command(self) -> list[Word]:
        """The words up to the next operator or line end."""
        words: list[Word] = []
        assigned: dict[str, list[str]] = {}
        declares = True
        while not self.ended():
            start = self.at
            redirection = REDIRECTION.match(self.text, start)
            assignment = ASSIGNMENT.match(self.text, start) if declares else None
            if redirection:
                self.redirect(redirection)
            elif assignment:
                self.at = assignment.end()
                assigned[assignment[1]] = self.assign(assignment)
            else:
                fields = self.fields()
                self.at += self.at == start
                if not words and self.text[start : self.at] in KEYWORDS:
                    self.keyword(self.text[start : self.at])
                    continue
                words += [self.shell.word(field, self.place(start)) for field in fields]
                declares = bool(words) and words[0].text in DECLARING
        if words and not declares:
            return [*self.around(assigned, words[0].place), *words]
        self.keep(assigned)
        if words and words[0].text == "export":
            self.shell.exported |= dict.fromkeys([*assigned, *(word.text for word in words[1:])])
        return []

    def around(self, assigned: dict[str, list[str]], place: str) -> list[Word]:
        """SGLang's variables that hold for one command, as `env` would take them."""
        held: dict[str, str] = {}
        for name in self.shell.exported:
            if SERVER_VARIABLE.fullmatch(name) and name in self.shell.variables:
                held[name] = " ".join(self.variable(name, None, f"${name}"))
        for name, value in assigned.items():
            if SERVER_VARIABLE.fullmatch(name):
                held[name] = " ".join(value)
        return [self.shell.word(f"{name}={value}", place) for name, value in held.items()]

    def ended(self) -> bool:
        """Skip blanks and comments; whether the command ends here (its operator is consumed)."""
        blank = BLANK.match(self.text, self.at)
        if blank:
            self.at = blank.end()
        if self.text.startswith("#", self.at):
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
        if self.at >= len(self.text):
            return True
        letter = self.text[self.at]
        if letter not in "\n;|()&" or self.text.startswith("&>", self.at):
            return False
        self.at += 1
        if letter == "\n":
            self.pass_heredocs()
        return True

    def keyword(self, word: str) -> None:
        """Note where commands become conditional; a loop's variable has no single value."""
        if word in OPENING:
            self.condition += 1
        if word in CLOSING:
            self.condition = max(0, self.condition - 1)
        if word in {"for", "select"} and not self.ended():
            name = NAME.match(self.text, self.at)
            if name:
                self.at = name.end()
                self.shell.variables.pop(name[0], None)

    def assign(self, assignment: re.Match[str]) -> list[str]:
        """The value of `name=value`, `name+=value` or `name=(array)`."""
        before = self.shell.variables.get(assignment[1], []) if assignment[2] else []
        if self.text.startswith("(", self.at):
            return [*before, *self.array()]
        value = " ".join(self.fields(split=False))
        return [before[0] + value, *before[1:]] if before else [value]

    def array(self) -> list[str]:
        """The elements of `(…)`, which may go over several lines with comments."""
        opened = self.at
        self.at += 1
        elements: list[str] = []
        while self.at < len(self.text):
            if not self.ended():
                start = self.at
                elements += self.fields()
                self.at += self.at == start
            elif self.text[self.at - 1] == ")":
                return elements
        raise self.refuse("'(' is never closed", opened)

    def keep(self, assigned: dict[str, list[str]]) -> None:
        """Set variables; inside if, case or a loop they are marked as conditional."""
        for name, value in assigned.items():
            self.shell.variables[name] = value
            if self.condition:
                self.shell.conditional.add(name)
            else:
                self.shell.conditional.discard(name)

    def redirect(self, redirection: re.Match[str]) -> None:
        """Skip a redirection; a here-document's text is passed over when its line ends."""
        self.at = redirection.end()
        if redirection[1] in {"<<", "<<-"}:
            end = HEREDOC_END.match(self.text, self.at)
            if end:
                self.at = end.end()
                self.heredocs.append((end[2], redirection[1] == "<<-"))
            return
        blank = BLANK.match(self.text, self.at)
        if blank:
            self.at = blank.end()
        self.fields()

    def pass_heredocs(self) -> None:
        """Pass over the here-documents of the line before; a script inside one is read, too."""
        for delimiter, stripped in self.heredocs:
            begin = self.at
            while self.at < len(self.text):
                start = self.at
                end = self.text.find("\n", start)
                line = self.text[start:] if end < 0 else self.text[start:end]
                self.at = len(self.text) if end < 0 else end + 1
                if (line.lstrip("\t") if stripped else line) == delimiter:
                    self.inner(self.text[begin:start], begin)
                    break
        self.heredocs = []

    def inner(self, text: str, begin: int) -> None:
        """Read a here-document that holds a launch as a script of its own."""
        if "sglang" not in text or self.depth >= MAX_NESTING:
            return
        line, _ = self.line_column(begin)
        script = Script(text, self.where, self.shell, line=line, depth=self.depth + 1)
        try:
            self.found += script.commands()
        except InputError:
            return
