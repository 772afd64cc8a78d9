"""`kvplan check`: whether the launches of a fleet hold their budgets."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from kvplan.errors import InputError
from kvplan.guard.check import Checked, check_files, exit_code
from kvplan.guard.check_report import check_report

from .render import console, json_text, write_file

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


class Format(StrEnum):
    """Forms of a report."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"
    GITHUB = "github"
    SARIF = "sarif"
    MARKDOWN = "md"


SUFFIXES = {
    ".json": Format.JSON,
    ".xml": Format.JUNIT,
    ".sarif": Format.SARIF,
    ".md": Format.MARKDOWN,
}


@app.command()
def check(
    files: Annotated[
        list[Path], typer.Argument(help="Budget files, or folders of them.", show_default=False)
    ],
    format: Annotated[Format, typer.Option("--format", help="Form of the report.")] = Format.TEXT,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    output: Annotated[
        list[Path] | None,
        typer.Option("--output", help="Write a .json, .xml (JUnit), .sarif or .md file as well."),
    ] = None,
    lock: Annotated[
        Path | None, typer.Option("--lock", help="Capacity lock file to compare with.")
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Record these plans in the lock file instead.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the verdict alone.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="Plain text.")] = False,
) -> None:
    """Hold launches against their budgets: exit 0 all hold, 1 one is broken, 2 one is not readable."""
    form = Format.JSON if json else format
    results = check_files(files)
    results, locked = locking(results, lock, update=update)
    report = check_report(results, locked)
    for path in output or ():
        write_file(path, rendered(report, form_of(path)), suffixes=tuple(SUFFIXES))
    if quiet:
        print(report["verdict"]["text"])
    elif form is Format.TEXT:
        from .check_view import show_check

        show_check(report, console(color=not no_color))
    else:
        print(rendered(report, form), end="")
    raise typer.Exit(exit_code(results))


def locking(
    results: list[Checked], lock: Path | None, *, update: bool
) -> tuple[list[Checked], dict[str, Any] | None]:
    """The outcome with what the lock file says, or the lock file brought up to date."""
    if lock is None:
        if update:
            raise InputError("--update needs a lock file", hint="add --lock kvplan.lock.json")
        return results, None
    from kvplan.guard.lock_update import hold_to_lock, untouched_lock, updated_lock

    if not update:
        return hold_to_lock(results, lock), None
    untouched = untouched_lock(results, lock)
    if untouched is not None:
        return results, untouched
    text, report = updated_lock(results, lock)
    write_file(lock, text, suffixes=(".json",))
    return results, report


def form_of(path: Path) -> Format:
    """The form that a file name's suffix asks for; `write_file` refuses the others."""
    return SUFFIXES.get(path.suffix, Format.JSON)


def rendered(report: dict[str, Any], form: Format) -> str:
    """The report's text in a form that is not for the terminal."""
    match form:
        case Format.JUNIT:
            from kvplan.guard.junit import junit_text

            return junit_text(report)
        case Format.GITHUB:
            from kvplan.guard.github import github_text

            return github_text(report)
        case Format.SARIF:
            from kvplan.guard.sarif import sarif_log

            return json_text(sarif_log(report))
        case Format.MARKDOWN:
            from kvplan.guard.markdown import markdown_text

            return markdown_text(report)
    return json_text(report)
