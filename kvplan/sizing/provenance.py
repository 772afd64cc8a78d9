"""Where a resolved value came from, said only when somebody asks."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Source = Literal["given", "preset", "default", "derived"]

WORDS: dict[Source, str] = {
    "given": "given",
    "preset": "from a preset",
    "default": "engine default",
    "derived": "derived",
}


class Origin(msgspec.Struct, frozen=True):
    """One value's origin: its source, the rule of docs/defaults.md, and the rule's operands."""

    source: Source
    rule: str = ""
    formula: str = ""  # a format string over the operands
    operands: tuple[Any, ...] = ()
    assumed: bool = False  # read from the engine's source for a card that no record covers

    def __str__(self) -> str:
        text = WORDS[self.source]
        if self.rule:
            text += f" ({self.rule})"
        if self.formula:
            text += f": {self.formula.format(*self.operands)}"
        return f"{text}, assumed" if self.assumed else text


GIVEN = Origin("given")
PRESET = Origin("preset")


def given(value: Any, *, default: Origin) -> Origin:
    """GIVEN for an argument that the launch names, else the default's origin."""
    return default if value is None else GIVEN
