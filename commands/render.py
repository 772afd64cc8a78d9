"""The terminal: plain text where it is piped, colours where it is not."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_IMODE
from typing import Any

import msgspec

from kvplan.errors import InputError

GIB = 1 << 30
PIPED_WIDTH = 100
GAP = 3  # columns between two values of a table
WIDE = 40  # text columns beyond it wrap where the terminal is narrow
LEAST_TEXT = 20


def json_text(report: Any) -> str:
    """One JSON document, keys sorted, the same bytes for the same report."""
    encoded = msgspec.json.format(msgspec.json.encode(report, order="sorted"), indent=2)
    return encoded.decode() + "\n"


def write_json(report: Any) -> None:
    """Print one JSON document."""
    sys.stdout.write(json_text(report))


def write_file(path: Path, text: str, *, suffixes: Sequence[str]) -> None:
    """Write a text file of one of these forms."""
    check_output(path, suffixes)
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def check_output(path: Path, suffixes: Sequence[str], flag: str = "") -> None:
    """Refuse, before any work, a file that could not be written after it."""
    check_name(path, flag)
    if path.suffix not in suffixes:
        raise InputError(
            f"no form is written for '{path.name}'", hint=f"use a name in {' or '.join(suffixes)}"
        )
    if not path.parent.is_dir():
        raise InputError(f"the folder '{path.parent}' does not exist")
    if path.is_dir():
        raise InputError(f"'{path}' is a folder", hint="name a file in it")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise InputError(f"in the folder '{path.parent}' nothing can be written")


def check_name(path: Path, flag: str = "") -> None:
    """Refuse a name that no file can have, and links that lead round in a circle."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise InputError(f"{flag} cannot be used: {reason}".lstrip(), where=str(path)) from None


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A file to fill that takes its name when it is whole: a half-written one never shows under it.

    It is filled in a folder of its own beside its place, so that nothing else is in its way. A file
    that it replaces leaves it its permissions.
    """
    from tempfile import TemporaryDirectory

    try:
        with TemporaryDirectory(prefix=".kvplan-", dir=path.parent) as folder:
            partial = Path(folder) / path.name
            yield partial
            with suppress(FileNotFoundError):
                partial.chmod(S_IMODE(path.stat().st_mode))
            partial.replace(path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"cannot write: {reason}", where=str(path)) from None


def console(*, color: bool | None = None, stderr: bool = False) -> Any:
    """A rich console that honours NO_COLOR; plain text when piped, or where `color` is False."""
    from .quiet_console import QuietConsole as Console

    piped = not (sys.stderr if stderr else sys.stdout).isatty()
    return Console(
        width=PIPED_WIDTH if piped and "COLUMNS" not in os.environ else None,
        color_system=None if color is False else "auto",
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,
        stderr=stderr,
    )


def table(
    headers: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()
) -> Any:
    """A borderless table: numbers to the right, the last column and wide ones wrap, nothing is cut."""
    from rich import box

    from .whole_table import WholeTable

    rows = list(rows)
    grid = WholeTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    grid.least_width = GAP * (len(headers) - 1)
    for index, header in enumerate(headers):
        # a known width spares rich from rendering every cell twice
        width = max([len(header), *(len(row[index]) for row in rows)])
        fixed = index in right or (width <= WIDE and index < len(headers) - 1)
        grid.least_width += width if fixed else min(width, LEAST_TEXT)
        grid.add_column(
            header,
            justify="right" if index in right else "left",
            width=width if fixed else None,
            no_wrap=fixed,
            overflow="fold",
        )
    for row in rows:
        grid.add_row(*row)
    return grid


def gib(num_bytes: float) -> str:
    """Bytes as GiB to two digits, or MiB below a tenth of one."""
    if 0 < abs(num_bytes) < GIB / 10:
        return f"{num_bytes / (1 << 20):.2f} MiB"
    return f"{num_bytes / GIB:.2f} GiB"
