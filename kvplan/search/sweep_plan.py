"""What a sweep plans, as one value that travels to every worker: no file stands behind it."""

from __future__ import annotations

from typing import Any

import msgspec

from kvplan.search.grid import Grid
from kvplan.search.kinds import Column, Kind
from kvplan.search.pareto import Objectives
from kvplan.spec.gpu import GpuSpec
from kvplan.spec.model import ModelSpec

STARTS, LEFT_OUT = "starts", "left_out"
NO_MEMORY, REFUSED, INVALID = "no_memory", "refused", "invalid"
STATUSES = {
    STARTS: "starts",
    LEFT_OUT: "starts, but does not hold a condition on results",
    NO_MEMORY: "does not start for want of memory",
    REFUSED: "the engine does not serve these settings together",
    INVALID: "the inputs make no launch",
}
STATUS = Column("status", "text")
REASON = Column("reason", "text")
PARETO = Column("pareto", "flag")


class Presets(msgspec.Struct, frozen=True):
    """Everything that the file names, read once, by the name it has there."""

    models: dict[str, ModelSpec]  # drafts too
    gpus: dict[str, GpuSpec]
    parallel: dict[str, dict[str, Any]]
    speculative: dict[str, dict[str, Any]]


class SweepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep file after reading."""

    grid: Grid
    presets: Presets
    base: dict[str, Any]  # server arguments of the launch that the file names
    scope: dict[str, Kind]  # inputs that conditions and columns may name
    where: tuple[str, ...]
    inputs: tuple[Column, ...]  # that vary
    shown: tuple[Column, ...]  # further inputs, and results
    objectives: Objectives
    warnings: tuple[str, ...] = ()

    @property
    def planned_columns(self) -> tuple[Column, ...]:
        """Columns of a row as it is planned; the front is known only when all are."""
        return (*self.inputs, STATUS, *self.shown, REASON)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of the table."""
        return (*self.inputs, STATUS, *self.shown, PARETO, REASON)
