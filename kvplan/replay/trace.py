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

from kvplan.errors import MissingExtra
from kvplan.planner import Launch
from kvplan.replay import checks
from kvplan.replay.outcome import Outcome
from kvplan.replay.requests import BlockIds, Request
from kvplan.replay.run import Observer, ReplayOptions, replay
from kvplan.replay.workloads.detect import detect
from kvplan.replay.workloads.options import ReadOptions
from kvplan.replay.workloads.summary import Watch, WorkloadSummary
from kvplan.replay.workloads.workload import open_workload
from kvplan.sizing.plan import Plan
from kvplan.units import ceil_div

OPERATIONS = "events"
INTERPRETED = "interpret"
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
    """What came of a workload file; `workload` is None for a trace of operations."""

    outcome: Outcome
    workload: WorkloadSummary | None
    hashed: bool = False


def trace(session: Session, arrivals: Arrivals, pools: PoolOptions | None = None) -> Traced:
    """Replay a workload file; without `pools` over counts alone.

    TraceError where the file cannot be replayed; DeviceError where the pools cannot be built;
    KeyboardInterrupt where it is stopped before the file is read.
    """
    if pools is None and ranks_here() > 1:
        pools = PoolOptions()  # several ranks have something to agree on over pools alone
    if pools is not None and pools.device == INTERPRETED and "triton" not in sys.modules:
        os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when it is loaded
    if detect(arrivals.path, format=arrivals.format).format == OPERATIONS:
        player = pool_engine("operations_run")
        return Traced(player.trace_operations(session, arrivals.path, pools or PoolOptions()), None)
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
    return Traced(outcome, watch.summary(workload), hashed)


def num_served(session: Session, num_requests: int) -> int:
    """How many of so many requests one DP rank gets."""
    limit = session.options.limit
    taken = num_requests if limit is None else min(limit, num_requests)
    return ceil_div(taken, session.plan.resolved.widths.attn_dp)


def heed(stop: Callable[[], bool] | None) -> None:
    """End at once where nothing was replayed that could be reported."""
    if stop is not None and stop():
        raise KeyboardInterrupt


def ranks_here() -> int:
    """How many processes torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank_here() -> int:
    """Which of them this one is."""
    return int(os.environ["RANK"]) if ranks_here() > 1 else 0


def trace_counts(session: Session, requests: Iterable[Request], total: int) -> Outcome:
    """Replay over counts: no pool exists, so nothing on them is verified."""
    start = time.perf_counter()
    result = replay(
        session.plan,
        requests,
        session.options,
        observers=session.observers,
        stop=session.stop,
        total=total,
    )
    reason = "counts alone: --engine pools builds what could break it"
    return Outcome(
        result=result,
        engine="accounting",
        checks=tuple(checks.not_checked(name, reason) for name in checks.ALL),
        wall_s=time.perf_counter() - start,
    )


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
