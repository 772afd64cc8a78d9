"""`kvplan trace`: replay a workload through the scheduling model and the pools of a plan."""

import signal
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from kvplan.errors import InputError
from kvplan.planner import Planned, plan
from kvplan.replay.conditions import WAITS, Condition, asked_conditions
from kvplan.replay.outcome import Outcome
from kvplan.replay.run import ReplayOptions
from kvplan.replay.settings import launch_choices, not_modelled
from kvplan.replay.trace import OPERATIONS, Arrivals, Session, Traced, rank_here, ranks_here
from kvplan.replay.trace import trace as replay_file
from kvplan.replay.workloads.detect import detect
from kvplan.replay.workloads.options import ReadOptions
from kvplan.report.assumed import assumed, assumed_of_operations, supplied_notes
from kvplan.report.replay import trace_report
from kvplan.sizing.plan import Plan

from . import launch_options as options
from . import trace_options as own
from . import workload_options as reading
from .interrupts import stoppable
from .render import console, json_text, write_file, write_json
from .trace_live import screen

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
INTERRUPTED = 130


@app.command(context_settings=options.SERVER_FLAGS)
def trace(
    words: options.Words = None,
    workload: own.WorkloadName = None,
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
    engine: own.Engine = None,
    device: own.Device = None,
    kv_scale: own.KvScale = False,
    stamp: own.Stamp = False,
    verify_every: own.VerifyEvery = 1000,
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
    fail_on: own.FailOn = None,
    record: own.Record = None,
    shrink: own.Shrink = False,
    live: own.Live = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    output: own.Outputs = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the verdict alone.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="Plain text.")] = False,
) -> None:
    """Replay a workload through the pools of a launch: peaks, shortages, invariants."""
    conditions = asked_conditions(fail_on or ())
    pools = own.pool_options(
        engine, device, record,
        kv_scale=kv_scale, stamp=stamp, verify_every=verify_every, shrink=shrink,
    )  # fmt: skip
    arrivals = own.arrivals(
        workload,
        format,
        ReadOptions(
            skip_bad_rows=skip_bad_rows,
            block_size=block_size,
            prefix_only=prefix_only,
            time_unit=time_unit,
            request_rate=request_rate,
            output_len=output_len,
            seed=seed,
        ),
    )
    outputs = tuple(output or ())
    own.check_files(arrivals.path, outputs, record)
    refuse_waits(conditions, arrivals)
    assumptions = own.assumptions(max_new, tpot, prefill_rate)
    memory = options.memory_inputs(free_before, free_after, weights_gib, host_free_gib)
    asked = options.read_launch_options(
        options.LaunchOptions(
            words, gpu, parallel, speculative, draft, launch, launch_file, launch_name, sets, memory
        )
    )
    choices = launch_choices(asked.scheduling, accept_len)
    planned = plan(asked.launch)
    if not planned.starts:
        refuse(planned, json=json, outputs=outputs, quiet=quiet, color=not no_color)
    assert isinstance(planned.outcome, Plan)
    replay_options = ReplayOptions(assumptions=assumptions, choices=choices, limit=limit)
    with stoppable(*polite_ends()) as stop, screen(live, color=not no_color) as watching:
        session = Session(asked.launch, planned.outcome, replay_options, watching, stop)
        counts_alone = engine == "accounting"
        traced = replay_file(session, arrivals, pools, counts_alone=counts_alone)
    if traced.outcome.rank:
        leave(traced.outcome)
    supplied = supplied_notes(arrivals.options)
    notes = (*planned.estimate.assumed, *supplied, *session_notes(session, traced))
    unwritten = not_written(traced, record, outputs, shrink=shrink)
    report = trace_report(
        traced.outcome,
        planned.outcome,
        traced.workload,
        source=workload or "",
        detected=traced.detected,
        conditions=conditions,
        assumed=notes,
        warnings=(
            *planned.outcome.resolved.warnings,
            *asked.warnings,
            *not_modelled(asked.scheduling),
            *unwritten,
        ),
    )
    show(report, json=json, outputs=outputs, quiet=quiet, color=not no_color)
    for text in unwritten if quiet else ():
        print(text, file=sys.stderr)
    if traced.outcome.was_stopped:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(0 if report["verdict"]["passes"] else 1)


def refuse_waits(conditions: tuple[Condition, ...], arrivals: Arrivals) -> None:
    """InputError for conditions on waiting where operations are to be played."""
    waits = [each for each in conditions if each.name in WAITS]
    if waits and detect(arrivals.path, format=arrivals.format).format == OPERATIONS:
        raise InputError(
            f"'{waits[0]}' has no meaning for operations",
            hint="they have no arrivals: leave it out",
        )


def not_written(
    traced: Traced, record: Path | None, outputs: tuple[Path, ...], *, shrink: bool
) -> tuple[str, ...]:
    """What was asked for and there was nothing to write of."""
    outcome, found = traced.outcome, []
    if record is not None and outcome.reserve is None:
        found.append(f"'{record}' is not written: no replay over pools began")
    elif shrink and outcome.violation is None:
        found.append("nothing failed: there was nothing to shrink")
    elif shrink and outcome.shrunk is None:
        found.append("nothing was shrunk: the operations by themselves were not seen to fail")
    if traced.workload is None:
        tables = [each for each in outputs if each.suffix == ".csv"]
        found += [f"'{each}' has a header alone: operations have no times" for each in tables]
    return tuple(found)


def polite_ends() -> tuple[signal.Signals, ...]:
    """Signals that end a replay as Ctrl-C does; torchrun's own must end a rank that waits."""
    return (signal.SIGTERM,) if ranks_here() == 1 else ()


def refuse(
    planned: Planned, *, json: bool, outputs: tuple[Path, ...], quiet: bool, color: bool
) -> NoReturn:
    """The answer for a launch that does not start; the first of several ranks gives it."""
    if rank_here():
        raise typer.Exit(0)
    from kvplan.report.replay_refusal import refusal_report

    report = refusal_report(planned)
    for output in outputs:
        if output.suffix == ".json":
            write_file(output, json_text(report), suffixes=own.OUTPUTS)
        else:
            print(f"'{output}' is not written: there was no replay", file=sys.stderr)
    if json:
        write_json(report)
    else:
        out = console(color=color)
        out.print(report["verdict"]["text"], style="bold red")
        if not quiet:
            from .size_view import show_cures

            show_cures(report, out)
    raise typer.Exit(1)


def leave(outcome: Outcome) -> NoReturn:
    """What a rank other than the first says: what it found broken.

    The first one answers for all; torchrun would end it before it can if another failed.
    """
    if outcome.violation is not None:
        sentence = outcome.violation.sentence()
        print(f"rank {outcome.rank}: {outcome.violation.check}: {sentence}", file=sys.stderr)
    raise typer.Exit(0)


def session_notes(session: Session, traced: Traced) -> tuple[str, ...]:
    """What the replay assumed."""
    if traced.workload is None:
        return assumed_of_operations(session.plan)
    server = traced.outcome.result.server
    assumptions = session.options.assumptions
    return assumed(session.plan, server, assumptions, traced.workload, hashed=traced.hashed)


def show(
    report: dict[str, Any], *, json: bool, outputs: tuple[Path, ...], quiet: bool, color: bool
) -> None:
    """The report in the forms that were asked for."""
    for output in outputs:
        write_file(output, written(report, output.suffix), suffixes=own.OUTPUTS)
    if json:
        write_json(report)
    elif quiet:
        print(report["verdict"]["text"])
    else:
        from .trace_view import show_trace

        show_trace(report, console(color=color))


def written(report: dict[str, Any], suffix: str) -> str:
    """The report as a file of a form."""
    match suffix:
        case ".csv":
            from kvplan.report.replay_csv import csv_text

            return csv_text(report)
        case ".html":
            from kvplan.report.replay_html import html_text

            return html_text(report)
    return json_text(report)
