"""A workload through real pools, with the prediction over counts beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import msgspec

from kvplan.errors import PoolError, ReplayViolation
from kvplan.kernels.compiled import compile_counts
from kvplan.pools.build import build
from kvplan.replay import checks
from kvplan.replay.checks import Broken, Check, Violation
from kvplan.replay.outcome import Outcome
from kvplan.replay.pools.assembly import Assembly, assemble
from kvplan.replay.pools.devices import one_thread, place_named
from kvplan.replay.pools.recording import Recording, header_of, recording, write_whole
from kvplan.replay.pools.shrink import shortest
from kvplan.replay.pools.snapshot import Snapshot
from kvplan.replay.pools.verified import broken_checks, bytes_check, peaks_check, witness_checks
from kvplan.replay.replay import Replay
from kvplan.replay.requests import Request
from kvplan.replay.result import ReplayResult
from kvplan.replay.run import Driver, Observer, replay, served
from kvplan.replay.settings import server_of
from kvplan.replay.trace import PoolOptions, Session
from kvplan.replay.workloads.events import open_events
from kvplan.replay.workloads.operations import Operation
from kvplan.replay.workloads.summary import Watch
from kvplan.replay.workloads.workload import Workload
from kvplan.report.allocation import cuda_bytes, cuda_counts
from kvplan.report.state import state_text

OPERATIONS, STATE = ".jsonl", ".json"


class Measured(NamedTuple):
    """A replay over pools: its figures, and the invariant that it broke, if any."""

    result: ReplayResult
    broken: Broken | None


def trace_pools(
    session: Session, workload: Workload, options: PoolOptions, watch: Watch
) -> Outcome:
    """Predict over counts, build the pools, replay over them, and compare.

    DeviceError where the pools cannot be built; a broken invariant is part of the outcome.
    """
    place = place_named(options.device)
    stores = place.device.type != "meta"
    predicted = replay(
        session.plan,
        iter(workload) if stores else watch.watched(iter(workload)),
        session.options,
        observers=session.observers,
        stop=session.stop,
        total=len(workload),
    )
    counts = cuda_counts(place.device)
    pools = build(session.plan, place.device, kv_scale=options.kv_scale)
    on_cuda = place.device.type == "cuda"
    cuda = cuda_bytes(pools, counts, cuda_counts(place.device)) if on_cuda else None
    bytes_ = bytes_check(session.plan, pools, 0, cuda)
    base = Outcome(result=predicted, engine="pools", device=place.name, kv_scale=options.kv_scale)
    if not stores or not predicted.complete:
        reason = "on meta nothing is stored" if not stores else "stopped before the pools were used"
        rest = [checks.not_checked(name, reason) for name in checks.ALL[1:]]
        return msgspec.structs.replace(base, checks=(bytes_, *rest))
    server = server_of(session.plan, session.options.choices)

    def fresh(write: Callable[[Operation], None] | None = None) -> Assembly:
        return assemble(server, pools, place, options, write)

    start = time.perf_counter()
    with one_thread(), recorded(session, options) as made:
        assembly = fresh(None if made is None else made.write)
        requests = watch.watched(iter(workload))
        peak = Snapshot(assembly.memory, session.launch, predicted.pools[0].peak_step)
        observers = (peak,) if wants_state(options) else ()
        measured = measure(session, requests, assembly, len(workload), observers)
        shrunk = None
        if made is not None:
            made.close()
            if measured.broken is not None and options.shrink:
                shrunk = shrink(made, fresh)
    if options.record is not None and peak.state is not None:
        write_whole(options.record, state_text(peak.state))
    return msgspec.structs.replace(
        base,
        result=measured.result,
        checks=all_checks(bytes_, predicted, measured, assembly),
        violation=violation_of(measured),
        shrunk=shrunk,
        latencies=assembly.memory.latencies.figures(),
        compiled=compile_counts(),
        wall_s=time.perf_counter() - start,
    )


def recorded(session: Session, options: PoolOptions) -> AbstractContextManager[Recording | None]:
    """Where operations are written, if anybody needs them."""
    target = options.record if options.record and options.record.suffix == OPERATIONS else None
    if target is None and not options.shrink:
        return nullcontext()
    server = server_of(session.plan, session.options.choices)
    return recording(target, header_of(server, session.plan.model.name))


def shrink(made: Recording, fresh: Callable[[], Assembly]) -> int | None:
    """Cut a recording to its shortest prefix that still fails; None where it does not fail alone."""
    found = shortest(lambda: open_events(made.path), fresh)
    if found is None or found.broken is None:
        return None
    made.cut(found.num_operations)
    return found.num_operations


def violation_of(measured: Measured) -> Violation | None:
    """The broken invariant at the step in which it was found."""
    broken = measured.broken
    return None if broken is None else broken.at(measured.result.num_steps)


def wants_state(options: PoolOptions) -> bool:
    """Whether the pools at their fullest are to be written down."""
    return options.record is not None and options.record.suffix == STATE


def measure(
    session: Session,
    requests: Iterable[Request],
    assembly: Assembly,
    total: int,
    observers: tuple[Observer, ...] = (),
) -> Measured:
    """Replay over pools up to the end, a stop, or the first broken invariant."""
    plan, options = session.plan, session.options
    run = Replay(
        server_of(plan, options.choices),
        assembly.memory,
        served(plan, requests, options.limit),
        options.assumptions,
        jumps=False,
    )
    driver = Driver(
        run,
        observers=(*assembly.observers, *observers, *session.observers),
        stop=session.stop,
        total=total,
    )
    broken = None
    try:
        driver.go()
        assembly.auditor.audit()
    except Broken as error:
        broken = error
    except (ReplayViolation, PoolError) as error:
        broken = Broken(checks.OWNERS, error.problem)
    if broken is not None and assembly.recorder is not None:
        assembly.recorder.flush()
    return Measured(driver.result(), broken)


def all_checks(
    bytes_: Check, predicted: ReplayResult, measured: Measured, assembly: Assembly
) -> tuple[Check, ...]:
    """The six checks of a replay over pools."""
    result, broken = measured
    if broken is not None:
        return broken_checks(broken, bytes_)
    made = witness_checks(assembly.auditor, assembly.reserve, assembly.stamper)
    if result.complete:
        return (bytes_, *made, peaks_check(predicted, result))
    return (bytes_, *made, checks.not_checked(checks.PEAKS, "the replay was stopped"))
