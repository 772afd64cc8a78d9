"""Every documented example is true: console blocks are run and compared, pycon blocks are doctests."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from kvplan.commands.app import COMMANDS
from tests.doc_examples import (
    PAGES,
    REPOSITORY,
    blocks,
    matches,
    printed_by,
    reader_folder,
    sessions,
    trimmed,
)


def console_cases() -> list[tuple[str, str, str]]:
    return [
        (str(page.relative_to(REPOSITORY)), command, output)
        for page in PAGES
        for block in blocks(page, "console")
        for command, output in sessions(block)
        if command.startswith("kvplan ")
    ]


@pytest.mark.parametrize(("page", "command", "output"), console_cases())
def test_console_block_shows_what_the_command_prints(
    page: str, command: str, output: str, tmp_path: Path
):
    printed = printed_by(command, reader_folder(tmp_path))

    assert matches(trimmed(output), printed), f"{page}: $ {command}\n" + "\n".join(printed)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_examples_are_doctests(page: Path):
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for index, text in enumerate(blocks(page, "pycon")):
        example = doctest.DocTestParser().get_doctest(text, {}, f"{page.name}#{index}", None, None)
        runner.run(example)

    assert not runner.summarize().failed


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_is_on_some_page(command: str):
    assert any(f"kvplan {command}" in page.read_text(encoding="utf-8") for page in PAGES)
