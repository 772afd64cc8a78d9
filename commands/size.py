"""`kvplan size`: what a launch will get, without a GPU."""

from pathlib import Path
from typing import Annotated, Any

import typer

from kvplan.planner import plan
from kvplan.report.plan import size_report

from . import launch_options as options
from .render import console, write_file, write_json

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(context_settings=options.SERVER_FLAGS)
def size(
    words: options.Words = None,
    gpu: options.Gpu = None,
    parallel: options.Parallel = None,
    speculative: options.Speculative = None,
    draft: options.Draft = None,
    launch: options.LaunchLine = None,
    launch_file: options.LaunchFile = None,
    launch_name: options.LaunchName = None,
    sets: options.Sets = None,
    context: Annotated[
        list[int] | None, typer.Option("--context", min=1, help="Requests that fit at this length.")
    ] = None,
    free_before: options.FreeBefore = None,
    free_after: options.FreeAfter = None,
    weights_gib: options.WeightsGib = None,
    host_free_gib: options.HostFreeGib = None,
    all_ranks: Annotated[bool, typer.Option("--all-ranks", help="Show every stage.")] = False,
    explain: Annotated[
        str | None, typer.Option("--explain", metavar="FIELD", help="Origin of a value, or 'all'.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    output: Annotated[Path | None, typer.Option("--output", help="Write a .json file.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the verdict alone.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="Plain text.")] = False,
) -> None:
    """Derive the plan of a launch: tokens, requests, where every GiB goes."""
    memory = options.memory_inputs(free_before, free_after, weights_gib, host_free_gib)
    asked = options.read_launch_options(
        options.LaunchOptions(
            words, gpu, parallel, speculative, draft, launch, launch_file, launch_name, sets, memory
        )
    )
    planned = plan(asked.launch)
    report = size_report(
        planned,
        contexts=tuple(context or ()),
        all_ranks=all_ranks,
        ignored=asked.ignored,
        warnings=asked.warnings,
    )
    show(report, explain=explain, json=json, output=output, quiet=quiet, color=not no_color)
    raise typer.Exit(0 if planned.starts else 1)


def show(
    report: dict[str, Any],
    *,
    explain: str | None,
    json: bool,
    output: Path | None,
    quiet: bool,
    color: bool,
) -> None:
    """The report in the form that was asked for."""
    if output is not None:
        from .render import json_text

        write_file(output, json_text(report), suffixes=(".json",))
    if json:
        write_json(report)
    elif explain is not None:
        from .explain import show_origins

        show_origins(report, explain, console(color=color))
    elif quiet:
        print(report["verdict"]["text"])
    else:
        from .size_view import show_size

        show_size(report, console(color=color))
