"""`kvplan sweep`: a grid of launches, each planned, and those that nothing beats."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from kvplan.errors import InputError
from kvplan.report.sweep import json_pieces, sweep_report
from kvplan.search.read_sweep import read_sweep
from kvplan.search.resume import Journal, header_of, part_file
from kvplan.search.sweep import Swept, run_sweep
from kvplan.search.sweep_plan import SweepPlan
from kvplan.search.workers import Workers, available_cores, local_workers

from .interrupts import stoppable
from .render import console
from .sweep_files import check_outputs, write_outputs

INTERRUPTED = 130
TABLE_ROWS = 20
LOCAL = "local"
YAML = (".yaml", ".yml")


class SweepCommand(TyperCommand):
    """`--ray` may stand without its address."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_address(args))


def with_address(args: Sequence[str]) -> list[str]:
    """`--ray` before another option, the spec or nothing starts a cluster of this machine."""
    words: list[str] = []
    for index, word in enumerate(args):
        words.append(word)
        following = args[index + 1] if index + 1 < len(args) else "-"
        if word == "--ray" and (following.startswith("-") or following.endswith(YAML)):
            words.append(LOCAL)
    return words


app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(cls=SweepCommand)
def sweep(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.yaml", help="The grid.")],
    output: Annotated[
        list[Path] | None,
        typer.Option("--output", help="Write every row to a .csv, .parquet, .html or .json file."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the unfinished result of --output.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, max=1024, help="Processes; all cores if unset.")
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option("--ray", metavar="[ADDRESS]", help="Plan on a Ray cluster, or a local one."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=0, help="Most rows to print; the front has them.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the verdict alone.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="Plain text.")] = False,
) -> None:
    """Plan every combination of a grid of inputs, and find the Pareto front."""
    outputs = tuple(output or ())
    check_outputs(outputs)
    if resume and not outputs:
        raise InputError("--resume continues a file", hint="name it with --output")
    plan = read_sweep(spec)
    part = part_file(outputs[0]) if outputs else None
    header = header_of(plan, version("kvplan-pools"))
    opened = Journal.continued(part, header) if part and resume else Journal.fresh(part, header)
    workers, jobs = chosen_workers(plan, ray, jobs)
    with opened as journal:
        from .sweep_live import progress

        with stoppable() as stop, progress(plan, hidden=quiet) as shown:
            swept = run_sweep(plan, workers, jobs, journal, shown, stop)
        if swept.complete:
            write_outputs(swept, outputs)
            journal.discard()
        show(swept, part, limit=limit, json=json, quiet=quiet, color=not no_color)
    if not swept.complete:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(0 if sweep_report(swept)["verdict"]["starts"] else 1)


def chosen_workers(plan: SweepPlan, ray: str | None, jobs: int | None) -> tuple[Workers, int]:
    """The cluster that is asked for, or this machine."""
    if ray is None:
        return local_workers(plan.grid.count, jobs)
    from kvplan.search.ray_cluster import RayCluster

    jobs = jobs or available_cores()
    return RayCluster(ray, jobs), jobs


def show(
    swept: Swept, part: Path | None, *, limit: int | None, json: bool, quiet: bool, color: bool
) -> None:
    """The rows in the form that was asked for."""
    if json:
        for piece in json_pieces(swept, limit):
            print(piece, end="")
    elif quiet:
        print(sweep_report(swept)["verdict"]["text"])
    else:
        from .sweep_view import show_sweep

        rows = TABLE_ROWS if limit is None else limit
        show_sweep(swept, console(color=color), limit=rows)
    if not swept.complete and part is not None:
        console(stderr=True).print(f"finished rows are kept in '{part}': --resume continues")
