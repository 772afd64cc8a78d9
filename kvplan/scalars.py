"""What an unquoted YAML scalar means, and the spellings that mean something else than they seem to."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

Scalar = str | int | float | bool | None


class ScalarTrap(ValueError):
    """A scalar that YAML readers disagree about: the problem and how to write it instead."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


def read_scalar(text: str) -> Scalar:
    """Value of an unquoted scalar; ScalarTrap where its meaning depends on the reader."""
    if text in WORDS:
        return WORDS[text]
    if text in LOOKALIKES:
        meant = LOOKALIKES[text]
        raise ScalarTrap(
            f"'{text}' is a boolean to some YAML readers and text to others",
            f"write {meant}, or quote it: '{text}'",
        )
    if text[0] not in NUMBER_STARTS:
        return text
    if INTEGER.fullmatch(text):
        return int(text)
    if re.fullmatch(FLOAT, text, re.ASCII):
        return finite(float(text), text)
    for pattern, what, rewrite in TRAPS:
        if re.fullmatch(pattern, text, re.ASCII):
            raise ScalarTrap(f"'{text}' {what}", rewrite(text))
    return text


def finite(number: float, text: str) -> float:
    """The number itself; ScalarTrap when it overflowed to infinity."""
    if math.isfinite(number):
        return number
    raise ScalarTrap(f"'{text}' is too large for a number", "write a finite number")


def decimal_digits(text: str) -> str:
    """Hint for an integer written with a leading zero or group separators."""
    digits = re.sub(r"[_+oO]", "", text).lstrip("0") or "0"
    return f"write {digits}, or quote it if it is text"


def plain_or_signed(text: str) -> str:
    """Hint for an exponent: the same number in full digits and in YAML's own float form."""
    mantissa, exponent = text.lower().split("e")
    if abs(int(exponent[:6])) > 300:
        return "write a number of ordinary size"
    power = int(exponent)
    mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
    yaml_form = f"{mantissa}e{'-' if power < 0 else '+'}{abs(power)}"
    number = float(text)
    if number.is_integer() and abs(number) < 1e16:
        return f"write {int(number)} or {yaml_form}"
    return f"write {yaml_form}"


def base_ten(text: str) -> str:
    """Hint for a number written in another base."""
    del text
    return "write it in decimal, or quote it if it is text"


def quoted(text: str) -> str:
    """Hint for text that some readers take for a number."""
    return f"quote it if it is text: '{text}'"


def finite_only(text: str) -> str:
    """Hint for infinities and not-a-number."""
    del text
    return "write a finite number"


WORDS: dict[str, Scalar] = {
    **dict.fromkeys(["", "~", "null", "Null", "NULL"]),
    **dict.fromkeys(["true", "True", "TRUE"], True),
    **dict.fromkeys(["false", "False", "FALSE"], False),
}
LOOKALIKES = {
    spelling: meant
    for word, meant in {"yes": "true", "on": "true", "no": "false", "off": "false"}.items()
    for spelling in (word, word.capitalize(), word.upper())
}
NUMBER_STARTS = frozenset("+-.0123456789")
INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,29})", re.ASCII)
FLOAT = r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?"
# patterns are compiled where they are first needed: most files hold none of these
TRAPS: tuple[tuple[str, str, Callable[[str], str]], ...] = (
    (
        r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+",
        "is text to YAML readers of version 1.1, not a number",
        plain_or_signed,
    ),
    (
        r"[-+]?0[oO]?[0-9_]+",
        "has a leading zero, which some YAML readers take for octal",
        decimal_digits,
    ),
    (
        r"[-+]?0[xXbB][0-9a-fA-F_]+",
        "is a number in another base to some YAML readers",
        base_ten,
    ),
    (
        r"[-+]?[0-9][0-9_]*_[0-9_]*",
        "is a number to some YAML readers and text to others",
        decimal_digits,
    ),
    (
        r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?",
        "is a base-60 number to YAML readers of version 1.1",
        quoted,
    ),
    (
        r"[-+]?\.(?:[iI][nN][fF]|[nN][aA][nN])",
        "is no finite number",
        finite_only,
    ),
    (r"[-+]?[0-9]{31,}", "has too many digits", finite_only),
)
