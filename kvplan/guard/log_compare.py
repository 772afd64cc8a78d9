"""A start-up log against the plan of its launch, figure by figure, with the likely cause of each difference."""

from __future__ import annotations

import msgspec

from kvplan.guard.cause_case import Case
from kvplan.guard.causes import explained, failure_cause
from kvplan.guard.log_memory import Measured
from kvplan.guard.log_predict import pool_length, predictions
from kvplan.guard.log_rows import Cause, Row
from kvplan.guard.log_sizing import memory_bounds, sizing_of
from kvplan.guard.server_log import Figure, ServerLog
from kvplan.planner import Launch, Planned
from kvplan.sizing.plan import Plan

FAILURES = ("weights_leave_nothing", "pool_too_small", "out_of_memory", "host_memory")


class Start(msgspec.Struct, frozen=True):
    """Whether the server came up, and whether the plan says so; None where the log does not tell."""

    logged: bool | None
    planned: bool
    measured: bool
    """whether the plan knows the memory, so that its answer counts"""
    cause: Cause | None = None

    @property
    def agrees(self) -> bool:
        return self.logged is None or self.logged == self.planned or not self.measured


class Comparison(msgspec.Struct, frozen=True):
    """All rows of a log, in the order in which the server comes to them."""

    log: ServerLog
    planned: Planned
    measured: Measured
    start: Start
    rows: tuple[Row, ...]

    @property
    def differing(self) -> tuple[Row, ...]:
        return tuple(each for each in self.rows if each.counts and not each.agrees)

    @property
    def compared(self) -> int:
        return sum(each.counts for each in self.rows)

    @property
    def agrees(self) -> bool:
        return self.start.agrees and not self.differing


def compare(log: ServerLog, launch: Launch, planned: Planned, measured: Measured) -> Comparison:
    """Compare each logged figure that a plan predicts; `planned` is of the measured memory."""
    sizing = sizing_of(planned.outcome)
    least, most = memory_bounds(measured, planned.estimate)
    length, slots = whole(pool_length(log)), state_slots(log, planned)
    layout = None if length is None else sizing.at_tokens(length, slots)
    case = Case(log, launch, sizing, planned, measured, least, most, layout, length, slots)
    rows = explained(case, predictions(case))
    return Comparison(log, planned, measured, start(case), rows)


def state_slots(log: ServerLog, planned: Planned) -> int | None:
    """State slots as logged, else as planned; None where the model keeps no state."""
    outcome = planned.outcome
    if outcome.model.linear is None:
        return None
    state = outcome.stages[0].pool.budget.state if isinstance(outcome, Plan) else None
    return whole(log.get("max_mamba_cache_size")) or (state.slots if state else 1)


def whole(figure: Figure | None) -> int | None:
    return figure.value if figure is not None and isinstance(figure.value, int) else None


def start(case: Case) -> Start:
    """Whether it started; after an out-of-memory the pools may have fitted."""
    failed = any(event.kind in FAILURES for event in case.log.events)
    logged = False if failed else (True if case.tokens is not None else None)
    verdict = Start(logged, case.planned.starts, case.measured.complete)
    if logged is None or logged == verdict.planned:
        return verdict
    return msgspec.structs.replace(verdict, cause=failure_cause(case, started=bool(logged)))
