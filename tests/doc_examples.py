"""The documented examples; `python -m tests.doc_examples [PAGE…]` writes their outputs anew."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kvplan.commands.app import main

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(console|pycon)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ENVIRONMENT = {"COLUMNS": "100", "NO_COLOR": "1"}


def blocks(page: Path, language: str) -> Iterator[str]:
    """The text of every block of a language on a page."""
    for found, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if found == language:
            yield text


def sessions(text: str) -> Iterator[tuple[str, str]]:
    """Each `$ command` of a block with the output that follows it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        while command.endswith("\\"):
            more, _, output = output.partition("\n")
            command = command[:-1] + more
        yield command, output


def printed_by(command: str, folder: Path) -> list[str]:
    """What a command prints in a folder, trailing blanks removed."""
    out, before = io.StringIO(), Path.cwd()
    saved = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ |= ENVIRONMENT
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            main(shlex.split(command)[1:])
    finally:
        os.chdir(before)
        for name, value in saved.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
    return trimmed(out.getvalue())


def trimmed(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def reader_folder(folder: Path) -> Path:
    """A folder with the examples' files in it, as a reader of the checkout has them."""
    for name in ("tests", "docs", "presets"):
        (folder / name).symlink_to(REPOSITORY / name)
    return folder


def matches(shown: list[str], printed: list[str]) -> bool:
    """A line `...` stands for any lines; everything else is exact."""
    if "..." not in shown:
        return shown == printed
    cut = shown.index("...")
    if shown[:cut] != printed[:cut]:
        return False
    rest = shown[cut + 1 :]
    return any(matches(rest, printed[start:]) for start in range(cut, len(printed) + 1))


def refreshed(text: str, folder: Path) -> str:
    """A page with the output of its commands as they print now; outputs with `...` stay."""

    def block(found: re.Match[str]) -> str:
        if found[1] != "console":
            return found[0]
        parts = re.split(r"^(?=\$ )", found[2], flags=re.MULTILINE)
        return "```console\n" + "".join(session(part) for part in parts) + "```"

    def session(part: str) -> str:
        if not part.startswith("$ kvplan ") or "\n...\n" in part:
            return part
        command, _ = next(sessions(part))
        shown = part[: part.index("\n", part.rfind("\\\n") + 2 if "\\\n" in part else 0) + 1]
        return shown + "\n".join(printed_by(command, folder)) + "\n"

    return BLOCK.sub(block, text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        place = reader_folder(Path(scratch))
        for page in [Path(arg).resolve() for arg in sys.argv[1:]] or PAGES:
            page.write_text(refreshed(page.read_text(encoding="utf-8"), place), encoding="utf-8")
