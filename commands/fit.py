"""`kvplan fit`: the value of a server argument that gives what is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kvplan.errors import InputError
from kvplan.planner import plan
from kvplan.report.fit import fit_report
from kvplan.search.fit import fit as search
from kvplan.search.fit import trial_now
from kvplan.search.knobs import KNOBS, Goal, knob_named
from kvplan.search.target import Target, check_target

from . import launch_options as options
from . import workload_options as reading
from .render import console, json_text, write_file, write_json

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

Find = Annotated[
    list[str] | None,
    typer.Option("--find", metavar="KNOB", help="Which argument to turn; all of them without it."),
]
Tokens = Annotated[int | None, typer.Option("--tokens", min=1, help="Tokens of KV at least.")]
Requests = Annotated[
    int | None,
    typer.Option("--requests", min=1, help="Requests at once, of --context tokens each."),
]
Context = Annotated[
    int | None,
    typer.Option("--context", min=1, help="Length of a request; without it, the full context."),
]
HostTokens = Annotated[
    int | None, typer.Option("--host-tokens", min=1, help="Tokens of the host tier at least.")
]
HeadroomGib = Annotated[
    float | None, typer.Option("--headroom-gib", help="GiB to stay free beside the pools.")
]
WorkloadFile = Annotated[
    str | None,
    typer.Option("--workload", metavar="FILE", help="A trace to serve without a retraction."),
]


@app.command(context_settings=options.SERVER_FLAGS)
def fit(
    words: options.Words = None,
    find: Find = None,
    tokens: Tokens = None,
    requests: Requests = None,
    context: Context = None,
    host_tokens: HostTokens = None,
    headroom_gib: HeadroomGib = None,
    workload: WorkloadFile = None,
    format: reading.Format = None,
    skip_bad_rows: reading.SkipBadRows = False,
    block_size: reading.BlockSize = None,
    prefix_only: reading.PrefixOnly = False,
    time_unit: reading.TimeUnit = None,
    request_rate: reading.RequestRate = None,
    output_len: reading.OutputLen = None,
    seed: reading.Seed = None,
    limit: reading.Limit = None,
    max_new: reading.MaxNew = "exact",
    tpot: reading.Tpot = 20.0,
    prefill_rate: reading.PrefillRate = 20_000.0,
    accept_len: reading.AcceptLen = None,
    smallest: Annotated[bool, typer.Option("--smallest", help="The smallest value.")] = False,
    largest: Annotated[bool, typer.Option("--largest", help="The largest value.")] = False,
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
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    output: Annotated[Path | None, typer.Option("--output", help="Write a .json file.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the verdict alone.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="Plain text.")] = False,
) -> None:
    """Find the value of a server argument that gives so many tokens or requests, or serves a trace."""
    knobs = [knob_named(name) for name in find] if find else list(KNOBS)
    goal = wanted(smallest, largest)
    memory = options.memory_inputs(free_before, free_after, weights_gib, host_free_gib)
    asked = options.read_launch_options(
        options.LaunchOptions(
            words, gpu, parallel, speculative, draft, launch, launch_file, launch_name, sets, memory
        )
    )
    traffic = None
    if workload is not None:
        from .fit_traffic import read_traffic

        traffic = read_traffic(
            workload, asked.scheduling,
            format=format, skip_bad_rows=skip_bad_rows, block_size=block_size,
            prefix_only=prefix_only, time_unit=time_unit, request_rate=request_rate,
            output_len=output_len, seed=seed, limit=limit, max_new=max_new, tpot=tpot,
            prefill_rate=prefill_rate, accept_len=accept_len,
        )  # fmt: skip
    target = Target(
        tokens=tokens,
        requests=requests,
        context=context,
        host_tokens=host_tokens,
        headroom_gib=headroom_gib,
        workload=None if traffic is None else traffic.workload,
        replay=None if traffic is None else traffic.replay,
    )
    check_target(target)
    report = fit_report(
        [search(asked.launch, target, knob, goal) for knob in knobs],
        target,
        trial_now(asked.launch, target),
        assumed=(*plan(asked.launch).estimate.assumed, *(traffic.assumed if traffic else ())),
        warnings=(*asked.warnings, *(traffic.warnings if traffic else ())),
        ignored=asked.ignored,
    )
    show(report, json=json, output=output, quiet=quiet, color=not no_color)
    raise typer.Exit(0 if report["verdict"]["found"] else 1)


def wanted(smallest: bool, largest: bool) -> Goal | None:
    """The goal that the command line names; None leaves each knob its own."""
    if smallest and largest:
        raise InputError("--smallest and --largest exclude each other")
    return "smallest" if smallest else "largest" if largest else None


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
        from .fit_view import show_fit

        show_fit(report, console(color=color))
