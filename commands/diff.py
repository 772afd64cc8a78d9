"""`kvplan diff`: what changed between two plans, why, and how much."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kvplan.guard.diff import diff_report, fleet_report
from kvplan.guard.record import Record
from kvplan.guard.sources import Common, Plans, read_source

from .render import console, json_text, write_file, write_json

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def diff(
    before: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="MODEL@GPU[,KEY=VALUE...], a plan, budget, lock or launch file, a start-up log, or engine settings.",
        ),
    ],
    after: Annotated[str, typer.Argument(metavar="B", help="What to compare with it.")],
    model: Annotated[
        str | None,
        typer.Option(
            "--model", help="Model where a side names none, or a path of another machine."
        ),
    ] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", help="GPU of a side that names none.")] = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit 1 where anything changed.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    output: Annotated[Path | None, typer.Option("--output", help="Write a .json file.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the verdict alone.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="Plain text.")] = False,
) -> None:
    """Compare two plans: inputs with the effect of each, resolved values with their rules, figures."""
    common = Common(model, gpu)
    sides = read_source(before, common), read_source(after, common)
    report = compared(*sides)
    if output is not None:
        write_file(output, json_text(report), suffixes=(".json",))
    if json:
        write_json(report)
    elif quiet:
        print(report["verdict"]["text"])
    else:
        from .diff_view import show_diff

        show_diff(report, console(color=not no_color))
    lost = isinstance(sides[1], Record) and not sides[1].starts
    raise typer.Exit(int(lost or (exit_code and not report["verdict"]["same"])))


def compared(before: Record | Plans, after: Record | Plans) -> dict[str, Any]:
    """The report of two plans, or of two files of plans."""
    if isinstance(before, Plans) and isinstance(after, Plans):
        return fleet_report(before.records, after.records)
    first = before.only() if isinstance(before, Plans) else before
    second = after.only() if isinstance(after, Plans) else after
    return diff_report(first, second)
