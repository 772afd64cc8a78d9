"""`kvplan log`: a server's start-up log against the plan of its launch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from kvplan.errors import InputError
from kvplan.guard.log_compare import compare
from kvplan.guard.log_launch import log_launch, nearest_card
from kvplan.guard.log_memory import Measured, measured_memory
from kvplan.guard.server_log import ServerLog, read_log
from kvplan.planner import plan
from kvplan.report.log import log_report

from . import launch_options as options
from .render import console, json_text, write_file, write_json

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(context_settings=options.SERVER_FLAGS)
def log(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="SERVER.LOG", help="Output of a server's start; - reads it from a pipe."
        ),
    ],
    words: options.Words = None,
    gpu: options.Gpu = None,
    parallel: options.Parallel = None,
    speculative: options.Speculative = None,
    draft: options.Draft = None,
    launch: options.LaunchLine = None,
    launch_file: options.LaunchFile = None,
    launch_name: options.LaunchName = None,
    sets: options.Sets = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    output: Annotated[Path | None, typer.Option("--output", help="Write a .json file.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the verdict alone.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="Plain text.")] = False,
) -> None:
    """Compare a server's start-up log with the plan of its launch, figure by figure."""
    read = read_log(file)
    measured = measured_memory(read)
    asked, notes = read_launch(
        read,
        measured,
        options.LaunchOptions(
            words, gpu, parallel, speculative, draft, launch, launch_file, launch_name, sets,
            measured.inputs(),
        ),
    )  # fmt: skip
    comparison = compare(read, asked.launch, plan(asked.launch), measured)
    report = log_report(comparison, notes=(*notes, *asked.warnings), ignored=asked.ignored)
    show(report, json=json, output=output, quiet=quiet, color=not no_color)
    raise typer.Exit(0 if comparison.agrees else 1)


def read_launch(
    read: ServerLog, measured: Measured, given: options.LaunchOptions
) -> tuple[options.Asked, tuple[str, ...]]:
    """The launch as the user gives it, else as the log prints it; without --gpu the nearest card."""
    notes: tuple[str, ...] = ()
    if given.launch is None and given.launch_file is None:
        own = log_launch(read)
        base = options.Written(own.model, own.draft, own.server)
        given = msgspec.structs.replace(given, base=base)
        notes = own.notes
        if own.model is None and not options.split_words(given.words)[0]:
            raise InputError(
                "the log does not name a shipped model",
                where=read.file,
                hint="name it: kvplan log server.log MODEL, or add --launch '…'",
            )
    if given.gpu is None:
        card = nearest_card(measured.before.gib) if measured.before is not None else None
        if card is None:
            raise InputError("the log does not tell the card", where=read.file, hint="add --gpu")
        notes = (*notes, f"the card is taken for {card} by its free memory: --gpu names another")
        given = msgspec.structs.replace(given, gpu=card)
    return options.read_launch_options(given), notes


def show(
    report: dict[str, Any], *, json: bool, output: Path | None, quiet: bool, color: bool
) -> None:
    """The report in the form that was asked for."""
    if output is not None:
        write_file(output, json_text(report), suffixes=(".json",))
    if json:
        write_json(report)
    elif quiet:
        print(report["verdict"]["text"])
    else:
        from .log_view import show_log

        show_log(report, console(color=color))
