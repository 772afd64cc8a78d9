"""`kvplan inspect`: the pools' layout, where a token lives, what a recorded state holds."""

from pathlib import Path
from typing import Annotated, Any

import typer

from kvplan.report.inspect import inspect_report, refusal_report
from kvplan.sizing.plan import NoStart
from kvplan.state.recorded import Recorded

from . import inspect_options as own
from . import launch_options as options
from .render import console, json_text, write_file, write_json

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(context_settings=options.SERVER_FLAGS)
def inspect(
    words: options.Words = None,
    gpu: options.Gpu = None,
    parallel: options.Parallel = None,
    speculative: options.Speculative = None,
    draft: options.Draft = None,
    launch: options.LaunchLine = None,
    launch_file: options.LaunchFile = None,
    launch_name: options.LaunchName = None,
    sets: options.Sets = None,
    free_before: options.FreeBefore = None,
    free_after: options.FreeAfter = None,
    weights_gib: options.WeightsGib = None,
    host_free_gib: options.HostFreeGib = None,
    state: own.State = None,
    request: own.Request = None,
    position: own.Position = None,
    slot: own.Slot = None,
    allocate: own.Allocate = False,
    device: own.Device = None,
    kv_scale: own.KvScale = False,
    pp_rank: own.PpRank = None,
    all_ranks: own.AllRanks = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    output: own.Output = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the verdict alone.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="Plain text.")] = False,
) -> None:
    """Show the pools' layout, a token's bytes, or what a recorded state holds."""
    memory = options.memory_inputs(free_before, free_after, weights_gib, host_free_gib)
    found = own.find(
        options.LaunchOptions(
            words, gpu, parallel, speculative, draft, launch, launch_file, launch_name, sets, memory
        ),
        own.Wanted(
            state=state, request=request, position=position, slot=slot, allocate=allocate,
            device=device, kv_scale=kv_scale, pp_rank=pp_rank, all_ranks=all_ranks, output=output,
        ),
    )  # fmt: skip
    if isinstance(found.subject, NoStart):
        report = refusal_report(found.subject, warnings=found.warnings)
    else:
        report = inspect_report(found.subject, warnings=found.warnings)
    if output is not None:
        write_output(output, report, found.recorded)
    show(report, json=json, quiet=quiet, color=not no_color)
    raise typer.Exit(0 if report["verdict"]["sound"] else 1)


def write_output(output: Path, report: dict[str, Any], recorded: Recorded | None) -> None:
    """The report, or the picture of a state."""
    text = json_text(report)
    if output.suffix == ".svg":
        from kvplan.report.svg import occupancy_svg

        assert recorded is not None, "a picture needs --state"
        text = occupancy_svg(recorded)
    write_file(output, text, suffixes=own.OUTPUTS)


def show(report: dict[str, Any], *, json: bool, quiet: bool, color: bool) -> None:
    """The report in the form that was asked for."""
    if json:
        write_json(report)
    elif quiet:
        print(report["verdict"]["text"])
    else:
        from .inspect_view import show_inspect

        show_inspect(report, console(color=color))
