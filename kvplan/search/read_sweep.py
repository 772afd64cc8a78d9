"""From a sweep file to what it plans; every refusal has the line that it is about."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kvplan import yamlfile
from kvplan.errors import InputError
from kvplan.search.axis import Axis
from kvplan.search.columns import DEFAULT_COLUMNS, column_of
from kvplan.search.grid import Grid, check_count
from kvplan.search.kinds import Column, Kind
from kvplan.search.pareto import Objectives
from kvplan.search.sweep_axes import axes_of, load_presets, scope_of
from kvplan.search.sweep_plan import SweepPlan
from kvplan.search.sweep_reader import SweepReader, read_base
from kvplan.search.sweep_spec import Pareto, SweepSpec
from kvplan.search.variants import check_variants
from kvplan.search.where import read_condition

DEFAULT_PARETO = Pareto(maximise="total_tokens", minimise="gpus")


def read_sweep(path: Path) -> SweepPlan:
    """Read a sweep file and all that it names. InputError with file, line and column."""
    document = yamlfile.load(path)
    reader = SweepReader(document.convert(SweepSpec), document)
    base = read_base(reader)
    axes = axes_of(reader, base)
    grid = Grid(axes)
    check_count(grid, document.file)
    presets = load_presets(reader, axes)
    check_variants(document, axes, presets)
    scope = scope_of(axes, presets, base)
    objectives = read_objectives(reader, scope)
    inputs, shown = read_columns(reader, axes, scope, objectives)
    return SweepPlan(
        grid=grid,
        presets=presets,
        base=base.server,
        scope=scope,
        where=read_where(reader, scope),
        inputs=inputs,
        shown=shown,
        objectives=objectives,
        warnings=base.warnings,
    )


def read_objectives(reader: SweepReader, scope: dict[str, Kind]) -> Objectives:
    """The columns of the Pareto front."""
    pareto = reader.spec.pareto or DEFAULT_PARETO
    sides = {side: words(getattr(pareto, side)) for side in ("maximise", "minimise")}
    for side, names in sides.items():
        with reader.at("pareto", side):
            for name in names:
                if column_of(name, scope).kind not in ("integer", "number"):
                    raise InputError(f"'{name}' is no number, so there is no most or least of it")
    objectives = Objectives(**sides)
    with reader.at("pareto"):
        if not objectives.names:
            raise InputError("the front has no objective", hint="add 'maximise: total_tokens'")
        check_once(objectives.names)
    return objectives


def read_columns(
    reader: SweepReader, axes: Sequence[Axis], scope: dict[str, Kind], objectives: Objectives
) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    """Inputs that vary; then the columns that are asked for and the objectives."""
    inputs = tuple(Column(axis.name, axis.kind) for axis in axes if axis.varies)
    asked = reader.spec.columns
    for index, name in enumerate(asked):
        with reader.at("columns", index):
            column_of(name, scope)
            check_once(asked[: index + 1])
    varying = {column.name for column in inputs}
    names = dict.fromkeys((*(asked or DEFAULT_COLUMNS), *objectives.names))
    return inputs, tuple(column_of(name, scope) for name in names if name not in varying)


def read_where(reader: SweepReader, scope: dict[str, Kind]) -> tuple[str, ...]:
    """The conditions, each of which can be read."""
    given = reader.spec.where
    for index, text in enumerate(words(given)):
        path = ("where",) if isinstance(given, str) else ("where", index)
        with reader.at(*path):
            read_condition(text, lambda name: column_of(name, scope).kind)
    return words(given)


def words(given: str | tuple[str, ...]) -> tuple[str, ...]:
    """One word or several."""
    return (given,) if isinstance(given, str) else given


def check_once(names: Sequence[str]) -> None:
    """Refuse a name that is given twice."""
    for index, name in enumerate(names):
        if name in names[:index]:
            raise InputError(f"'{name}' is given twice")
