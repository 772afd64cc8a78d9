"""One replay from a workload file: over counts alone, or over real pools beside the counts."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from kvplan.errors import InputError, MissingExtra, TraceError
from kvplan.planner import Launch
from kvplan.replay import checks
from kvplan.replay.measured import Measured, measured
from kvplan.replay.outcome import Outcome
from kvplan.replay.requests import BlockIds, Request
from kvplan.replay.run import Driver, Observer, ReplayOptions, over_counts
from kvplan.replay.workloads.detect import detect
from kvplan.replay.workloads.options import ReadOptions
from kvplan.replay.workloads.summary import Watch, WorkloadSummary
from kvplan.replay.workloads.workload import open_workload
from kvplan.sizing.plan import Plan
from kvplan.units import ceil_div

OPERATIONS = "events"
INTERPRETED = "interpret"
MOST_RANKS = 1 << 16
PEEKED = 100  # requests that are looked at for hashed blocks


class Arrivals(msgspec.Struct, frozen=True, kw_only=True):
    """A workload file and what is said of reading it."""

    path: Path
    format: str | None = None
    options: ReadOptions = ReadOptions()


class PoolOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the pools are built, what is verified on them, and what is kept of the run.

    Audits come every `verify_every` steps, with 0 only at the end. `record` is written where a
    violation, or with `.json` the peak, was met.
    """

    device: str = "auto"
    kv_scale: bool = False
    stamp: bool = False
    verify_every: int = 1000
    record: Path | None = None
    shrink: bool = False


class Session(msgspec.Struct, frozen=True):
    """A launch that starts, how it is replayed, and who looks on."""

    launch: Launch
    plan: Plan
    options: ReplayOptions = ReplayOptions()
    observers: tuple[Observer, ...] = ()
    stop: Callable[[], bool] | None = None


class Traced(msgspec.Struct, frozen=True):
    """What came of a workload file; `workload` is None for a trace of operations.

    `detected` says how the file was read.
    """

    outcome: Outcome
    detected: str
    workload: WorkloadSummary | None = None
    hashed: bool = False


def trace(
    session: Session,
    arrivals: Arrivals,
    pools: PoolOptions | None = None,
    *,
    counts_alone: bool = False,
) -> Traced:
    """Replay a workload file; without `pools` over counts, unless only pools can do it.

    `counts_alone` refuses what needs pools. TraceError where the file cannot be replayed;
    DeviceError where the pools cannot be built; KeyboardInterrupt where it is stopped before the
    file is read.
    """
    if pools is None and ranks_here() > 1:
        refuse_counts(counts_alone, "over counts several ranks have nothing to agree on")
        pools = PoolOptions()
    if pools is not None and pools.device == INTERPRETED and "triton" not in sys.modules:
        os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when it is loaded
    detected = detect(arrivals.path, format=arrivals.format)
    if detected.format == OPERATIONS:
        refuse_counts(counts_alone, "operations need slots, and counts have none")
        refuse_meaningless(session, arrivals)
        player = pool_engine("operations_run")
        outcome, partial = player.trace_operations(session, arrivals.path, pools or PoolOptions())
        stopped = "; of a replay that was stopped" if partial else ""
        return Traced(outcome, detected.describe() + stopped)
    workload = open_workload(
        arrivals.path,
        format=arrivals.format,
        options=arrivals.options,
        progress=lambda _: heed(session.stop),
    )
    watch = Watch()
    hashed = any(isinstance(each.identity, BlockIds) for each in islice(workload, PEEKED))
    if pools is None:
        total = num_served(session, len(workload))
        outcome = trace_counts(session, watch.watched(iter(workload)), total)
    else:
        outcome = pool_engine("run").trace_pools(session, workload, pools, watch)
    summary = watch.summary(workload, limit=session.options.limit)
    return Traced(outcome, detected.describe(), summary, hashed)


def refuse_counts(counts_alone: bool, problem: str) -> None:
    """InputError where the accounting engine was asked for and cannot do it."""
    if counts_alone:
        raise InputError(problem, hint="use --engine pools")


def refuse_meaningless(session: Session, arrivals: Arrivals) -> None:
    """TraceError for flags on requests: a trace of operations has none."""
    asked = arrivals.options.given()
    asked += ["--skip-bad-rows"] * arrivals.options.skip_bad_rows
    asked += ["--limit"] * (session.options.limit is not None)
    if asked:
        raise TraceError(
            f"{asked[0]} has no meaning for operations",
            where=str(arrivals.path),
            hint="leave it out: they are played as they stand",
        )


def num_served(session: Session, num_requests: int) -> int:
    """How many of so many requests one DP rank gets."""
    limit = session.options.limit
    taken = num_requests if limit is None else min(limit, num_requests)
    return ceil_div(taken, session.plan.resolved.widths.dp_ranks)


def heed(stop: Callable[[], bool] | None) -> None:
    """End at once where nothing was replayed that could be reported."""
    if stop is not None and stop():
        raise KeyboardInterrupt


def ranks_here() -> int:
    """How many processes torchrun started; 1 without it."""
    return torchrun_number("WORLD_SIZE", least=1) if "WORLD_SIZE" in os.environ else 1


def rank_here() -> int:
    """Which of them this one is."""
    num_ranks = ranks_here()
    return torchrun_number("RANK", most=num_ranks - 1) if num_ranks > 1 else 0


def torchrun_word(name: str) -> str:
    """What torchrun tells each process; InputError where it does not."""
    word = os.environ.get(name)
    if not word:
        raise not_launched(name, "is not set")
    return word


def torchrun_number(name: str, *, least: int = 0, most: int = MOST_RANKS) -> int:
    """A number that torchrun gives each process; InputError where it is none."""
    word = torchrun_word(name)
    if not (word.isdecimal() and least <= int(word) <= most):
        raise not_launched(name, f"is '{word}', not a number from {least:,} to {most:,}")
    return int(word)


def not_launched(name: str, problem: str) -> InputError:
    """The refusal of ranks that nobody launched together."""
    return InputError(
        f"one of several ranks, and {name} {problem}",
        hint="start it with torchrun, or unset WORLD_SIZE for one process",
    )


def trace_counts(session: Session, requests: Iterable[Request], total: int) -> Outcome:
    """Replay over counts: no pool exists, so nothing on them is verified."""
    start = time.perf_counter()
    found = measured_counts(session, requests, total)
    reason = "no pools were built (--engine pools builds them)"
    return Outcome(
        result=found.result,
        engine="accounting",
        checks=tuple(checks.not_checked(name, reason) for name in checks.ALL)
        if found.broken is None
        else checks.stopped_at(found.broken),
        violation=found.violation,
        wall_s=time.perf_counter() - start,
    )


def measured_counts(session: Session, requests: Iterable[Request], total: int) -> Measured:
    """Replay over counts, up to the first step that the engine would not survive."""
    run = over_counts(session.plan, requests, session.options)
    driver = Driver(run, observers=session.observers, stop=session.stop, total=total)
    return measured(driver)


def pool_engine(module: str) -> Any:
    """A module of the engine over real pools; MissingExtra where torch is not installed."""
    try:
        return importlib.import_module(f"kvplan.replay.pools.{module}")
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "triton", "numpy"):
            raise
        raise MissingExtra(
            f"the pools engine needs {error.name}, which is not installed",
            hint="pip install 'kvplan-pools[gpu]', or use --engine accounting",
        ) from None
