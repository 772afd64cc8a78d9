"""Which formats a set of columns or keys fits, and rows that are of another format than their file."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from kvplan.replay.workloads.formats import FORMATS, JSON, REFUSED, Format, Refused
from kvplan.replay.workloads.rows import INCONSISTENT, BadRow

Known = Format | Refused
KNOWN: tuple[Known, ...] = (*FORMATS.values(), *REFUSED)
KEYS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def most_specific(kind: str, present: Collection[str]) -> list[Known]:
    """Formats whose needs are met, without those that need only a part of what another needs."""
    keys = frozenset(present)
    fitting = [
        format
        for format in KNOWN
        if kind in format.kinds and format.required <= keys and not format.absent & keys
    ]
    return [
        format
        for format in fitting
        if not any(format.required < other.required for other in fitting)
    ]


def nearest_format(kind: str, present: Collection[str]) -> Format | None:
    """The format of which more than half of the needed keys are there, if it is the only one."""
    near = [
        format
        for format in FORMATS.values()
        if kind in format.kinds and 2 * len(format.required & set(present)) > len(format.required)
    ]
    return near[0] if len(near) == 1 else None


class Strangers:
    """Rows of another format among those of a file, as far as their reader could take them.

    Only a row that has all that the file's own format needs can pass for one of its own. Then a
    key tells it that a more specific format needs, or that the file's own must not have. Keys of
    the first row, and `fields` that the reader knows, tell nothing.
    """

    def __init__(self, format: str, fields: Collection[str]) -> None:
        self.own = FORMATS[format]
        telling = set(self.own.absent)
        for other in KNOWN:
            if JSON in other.kinds and self.own.required < other.required:
                telling.update(sorted(other.required - self.own.required - set(fields))[:1])
        self.marks = [f'"{key}"'.encode() for key in telling]
        self.seen_first = False

    def suspected(self, lines: list[bytes]) -> bool:
        """Whether a row with a telling key may be among these lines, the next ones of the file."""
        if not self.seen_first:
            first = next((line for line in lines if line and not line.isspace()), b"")
            self.marks = [mark for mark in self.marks if mark not in first]
            self.seen_first = bool(first)
        if not self.marks:
            return False
        content = b"\n".join(lines)
        return any(mark in content for mark in self.marks)

    def refuse(self, text: bytes) -> None:
        """BadRow naming the format that a row's keys fit, where it is not the file's own."""
        if not any(mark in text for mark in self.marks):
            return
        fitting = most_specific(JSON, KEYS.decode(text))
        if fitting and self.own not in fitting:
            raise BadRow(
                f"the row is of another format: {' or '.join(found.title for found in fitting)}, "
                f"not {self.own.title}",
                reason=INCONSISTENT,
                hint="two traces joined in one file? replay them one by one",
            )
