"""A trace of operations on real pools: what a replay recorded, or what somebody wrote."""

from __future__ import annotations

import time
from pathlib import Path

from kvplan.errors import InputError, TraceError
from kvplan.kernels.compiled import compile_counts
from kvplan.pools.build import build
from kvplan.replay import checks
from kvplan.replay.checks import Check, stopped_at
from kvplan.replay.outcome import Outcome
from kvplan.replay.pools.assembly import Assembly, assemble, blank
from kvplan.replay.pools.devices import one_thread, place_named
from kvplan.replay.pools.forms import refuse_other_forms
from kvplan.replay.pools.played_use import Level, levels_of
from kvplan.replay.pools.ranks import part_of
from kvplan.replay.pools.recording import OPERATIONS_SUFFIX, header_of, write_prefix
from kvplan.replay.pools.shrink import STRIDE, Played, play, shortest
from kvplan.replay.pools.verified import bytes_check, held, witness_checks
from kvplan.replay.result import ReplayResult, Spread
from kvplan.replay.server import Server
from kvplan.replay.settings import server_of
from kvplan.replay.trace import PoolOptions, Session
from kvplan.replay.workloads.events import open_events

FLAGS = {
    "page_size": "--page-size",
    "tokens": "--max-total-tokens",
    "rows": "--max-running-requests",
    "sliding_tokens": "--swa-full-tokens-ratio",
}
NO_SCHEDULER = "operations are played as they stand: nothing is predicted"


def trace_operations(session: Session, path: Path, options: PoolOptions) -> tuple[Outcome, bool]:
    """Play a file of operations, and whether a stopped replay left it.

    A broken invariant is part of the outcome.
    TraceError where the file contradicts itself, InputError where it was made on other pools.
    """
    refuse_other_forms(session.plan)
    if options.record is not None and options.record.suffix != OPERATIONS_SUFFIX:
        raise InputError(
            f"operations have no peak to record in '{options.record.name}'",
            hint=f"--record takes a name in {OPERATIONS_SUFFIX} here",
        )
    trace = open_events(path)
    server = server_of(session.plan, session.options.choices)
    refuse_other_pools(trace.header, server, path)
    if part_of(session.plan).num_ranks > 1:
        raise InputError("operations are played by one process", hint="leave torchrun out")
    place = place_named(options.device)
    if place.device.type == "meta":
        raise InputError("operations need slots, on meta there are none", hint="use --device cpu")
    pools = build(session.plan, place.device, kv_scale=options.kv_scale)
    bytes_ = bytes_check(session.plan, pools, 0, None)
    assembly = assemble(server, pools, place, options, played=True)
    levels = levels_of(server, assembly.memory)

    def look(number: int) -> None:
        for level in levels:
            level.look(number)

    start = time.perf_counter()
    try:
        with one_thread():
            played = play(
                trace,
                assembly,
                every=options.verify_every or STRIDE,
                after=look,
                stop=session.stop,
            )
            shrunk = None
            if played.broken is not None and options.shrink:
                shrunk = shortest(
                    lambda: open_events(path),
                    lambda: assemble(server, blank(pools), place, options, played=True),
                    session.stop,
                )
    except TraceError as error:
        where = str(path) if error.where is None else error.where
        where = where if str(path) in where else f"{path}: {where}"
        raise TraceError(error.problem, where=where, hint=error.hint) from None
    if played.complete and not played.num_operations:
        raise TraceError("no operation is below the header", where=str(path))
    if options.record is not None:
        kept = played if shrunk is None else shrunk
        write_prefix(options.record, trace, kept.num_operations)
    outcome = Outcome(
        result=result_of(server, played, levels),
        engine="pools",
        device=place.name,
        kv_scale=options.kv_scale,
        checks=operation_checks(bytes_, played, assembly),
        violation=None if played.broken is None else played.broken.at(played.step),
        shrunk=None if shrunk is None else shrunk.num_operations,
        latencies=assembly.memory.latencies.figures(),
        compiled=compile_counts(),
        reserve=assembly.reserve.use(),
        wall_s=time.perf_counter() - start,
    )
    return outcome, trace.is_partial


def refuse_other_pools(header: dict[str, object], server: Server, path: Path) -> None:
    """InputError where the operations were recorded on pools of other sizes."""
    for name, value in header_of(server, "").items():
        recorded = header.get(name, value)
        if name != "model" and recorded != value:
            raise InputError(
                f"recorded with {name.replace('_', ' ')} {recorded}, the launch has {value}",
                where=str(path),
                hint=f"replay it with {FLAGS[name]} {recorded}",
            )


def operation_checks(bytes_: Check, played: Played, assembly: Assembly) -> tuple[Check, ...]:
    """The checks of played operations; there is no prediction to compare with."""
    if played.broken is not None:
        return stopped_at(played.broken, (bytes_,))
    served = held(checks.SERVED, f"{played.num_operations:,} operations")
    made = witness_checks(assembly.auditor, assembly.reserve, assembly.stamper)
    return (bytes_, served, *made, checks.not_checked(checks.PEAKS, NO_SCHEDULER))


def result_of(server: Server, played: Played, levels: tuple[Level, ...]) -> ReplayResult:
    """The figures of a trace that has neither arrivals nor times."""
    return ReplayResult(
        server=server,
        complete=played.complete and played.broken is None,
        pools=tuple(level.use() for level in levels),
        num_steps=played.num_operations,
        wait_ns=Spread(p50=0, p95=0, p99=0, max=0),
    )
