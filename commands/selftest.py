"""`kvplan selftest`: kvplan's answers against recorded answers of the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvplan.extras import TORCH_HINT, has_torch
from kvplan.selftest import Comparison, run, tally

from .render import console, table, write_json

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def selftest(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="Records; default: shipped.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the verdict alone.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="Plain text.")] = False,
) -> None:
    """Compare kvplan with what the engine itself answered."""
    comparisons = list(run(files or ()))
    failed = [comparison for comparison in comparisons if comparison.differences]
    if json:
        write_json(report(comparisons))
    else:
        show(comparisons, failed, quiet=quiet, color=not no_color, shipped=not files)
    raise typer.Exit(1 if failed or not comparisons else 0)


def report(comparisons: list[Comparison]) -> dict[str, object]:
    failed = [each._asdict() for each in comparisons if each.differences]
    return {
        "schema": "kvplan.selftest/1",
        "agree": len(comparisons) - len(failed),
        "total": len(comparisons),
        "families": [family._asdict() for family in tally(comparisons)],
        "differences": failed,
    }


def show(
    comparisons: list[Comparison],
    failed: list[Comparison],
    *,
    quiet: bool,
    color: bool,
    shipped: bool,
) -> None:
    """The verdict first, then each family, then each difference."""
    out = console(color=color)
    agree, total = len(comparisons) - len(failed), len(comparisons)
    out.print(f"{agree:,} of {total:,} records agree", style="bold red" if failed else "bold green")
    if quiet:
        return
    rows = [(f.name, f"{f.agree:,}", f"{f.total:,}") for f in tally(comparisons)]
    out.print(table(("family", "agree", "of"), rows, right=(1, 2)))
    for comparison in failed:
        out.print(comparison.name)
        for line in comparison.differences:
            out.print(f"  {line}")
    if shipped and not has_torch():
        out.print(f"records of pools and allocators need torch: {TORCH_HINT}")
