"""One row of a workload file after parsing, and the checks that every format shares."""

from __future__ import annotations

import msgspec

from kvplan.errors import TraceError
from kvplan.replay.requests import Identity

MAX_TOKENS = (1 << 31) - 1
MAX_TIME_NS = 1 << 62
REMEMBERED_SPELLINGS = 100_000
MAX_DIGITS = 30

UNREADABLE = "unreadable"
OUT_OF_RANGE = "value out of range"
INCONSISTENT = "inconsistent"
HASH_COUNT = "hash count does not fit"


class BadRow(TraceError):
    """A row that cannot be meant; `reason` is the heading it is counted under when skipped."""

    def __init__(
        self,
        problem: str,
        *,
        reason: str = UNREADABLE,
        where: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(problem, where=where, hint=hint)
        self.reason = reason


class Row(msgspec.Struct, frozen=True, gc=False):
    """What one row says; `t_ns` counts from the file's own zero, lengths are in tokens."""

    t_ns: int
    input_len: int
    output_len: int
    line: int
    name: str = ""
    max_new: int | None = None
    session: str | None = None
    identity: Identity | None = None
    delay_ns: int | None = None

    @property
    def rid(self) -> str:
        """A name that no other row of the file has: its line, behind its own name if it has one."""
        return f"{self.name}@{self.line}" if self.name else str(self.line)


def token_count(value: int, column: str) -> int:
    """A length in tokens as read from JSON; BadRow outside 0 .. 2**31 - 1."""
    if 0 <= value <= MAX_TOKENS:
        return value
    if value < 0:
        raise BadRow(f"'{column}' is negative: {value}", reason=OUT_OF_RANGE)
    raise BadRow(
        f"'{column}' is {value}: more than {MAX_TOKENS} tokens are no request",
        reason=OUT_OF_RANGE,
        hint="is the column in tokens?",
    )


class TokenColumn(dict[str, int]):
    """Lengths of one CSV column by their spelling: `column[text]`, BadRow for what is no length.

    Whole numbers, `.0` is tolerated. Spellings come again and again, so they are remembered.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def __missing__(self, text: str) -> int:
        plain = text.strip()
        whole, dot, fraction = plain.partition(".")
        digits = whole.removeprefix("-")
        counts = digits.isdecimal() and digits.isascii() and len(digits) <= MAX_DIGITS
        if not counts or (dot and fraction.strip("0")):
            raise BadRow(f"'{self.name}' is {shown(plain)}, not a whole number of tokens")
        count = token_count(int(whole), self.name)
        if len(text) <= MAX_DIGITS and len(self) < REMEMBERED_SPELLINGS:
            self[text] = count
        return count


def shown(value: object, limit: int = 60) -> str:
    """A value for a message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
