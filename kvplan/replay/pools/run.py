"""A workload through real pools, with the prediction over counts beside it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import msgspec

from kvplan.kernels.compiled import compile_counts
from kvplan.pools.allocation import cuda_bytes, cuda_counts
from kvplan.pools.build import Pools, build
from kvplan.replay import checks
from kvplan.replay.checks import Check, stopped_at
from kvplan.replay.measured import Measured
from kvplan.replay.outcome import Outcome
from kvplan.replay.pools.assembly import Assembly, assemble, blank
from kvplan.replay.pools.devices import Place, one_thread, place_named
from kvplan.replay.pools.forms import refuse_other_forms
from kvplan.replay.pools.measure import measure
from kvplan.replay.pools.ranks import (
    Part,
    common_tokens,
    everyone,
    joined,
    part_of,
    refuse_other_launches,
)
from kvplan.replay.pools.recording import (
    OPERATIONS_SUFFIX,
    Recording,
    header_of,
    recording,
    write_whole,
)
from kvplan.replay.pools.same_launch import common_ground
from kvplan.replay.pools.shrink import shortest
from kvplan.replay.pools.snapshot import Snapshot
from kvplan.replay.pools.verified import (
    agreement_check,
    bytes_check,
    peaks_check,
    witness_checks,
)
from kvplan.replay.server import Server
from kvplan.replay.settings import server_of
from kvplan.replay.trace import PoolOptions, Session, measured_counts, num_served
from kvplan.replay.workloads.events import open_events
from kvplan.replay.workloads.summary import Watch
from kvplan.replay.workloads.workload import Workload
from kvplan.state.recorded import state_text

STATE = ".json"


def trace_pools(
    session: Session, workload: Workload, options: PoolOptions, watch: Watch
) -> Outcome:
    """Predict over counts, build the pools, replay over them, and compare.

    Under torchrun this process is one rank of several, which all do the same. DeviceError where
    the pools cannot be built, InputError for forms that are not replayed; a broken invariant is part of the outcome.
    """
    refuse_other_forms(session.plan)
    part = part_of(session.plan)
    place = place_named(options.device, part.local_rank)
    if part.rank:
        session = msgspec.structs.replace(session, observers=())
        options = msgspec.structs.replace(options, record=None, shrink=False)
    with joined(part, place.device):
        if part.num_ranks > 1:
            mine = common_ground(session, workload, options, place.device.type)
            refuse_other_launches(part, place.device, mine)
        return Trial(session, workload, options, watch, part, place).outcome()


class Trial:
    """One rank's replay over the pools of its stage."""

    def __init__(
        self,
        session: Session,
        workload: Workload,
        options: PoolOptions,
        watch: Watch,
        part: Part,
        place: Place,
    ) -> None:
        self._session = session
        self._workload = workload
        self._options = options
        self._watch = watch
        self._part = part
        self._place = place

    def outcome(self) -> Outcome:
        """All of it."""
        options, place, part = self._options, self._place, self._part
        stores = place.device.type != "meta"
        start = time.perf_counter()
        predicted = self._predict(watched=not stores)
        base = Outcome(
            result=predicted.result,
            engine="pools",
            device=place.name,
            kv_scale=options.kv_scale,
            rank=part.rank,
            num_ranks=part.num_ranks,
            violation=predicted.violation,
            wall_s=time.perf_counter() - start,
        )
        # on meta no step follows that the ranks would have to agree on
        goes_on = not predicted.was_stopped
        if not (everyone(part, place.device, goes_on) if stores else goes_on):
            base = msgspec.structs.replace(base, engine="accounting", device=None, kv_scale=False)
            return unused(base, "stopped before the pools were built")
        pools, bytes_ = self._build()
        if not stores and predicted.broken is not None:
            return msgspec.structs.replace(base, checks=stopped_at(predicted.broken, (bytes_,)))
        if not stores:
            return unused(base, "on meta nothing is stored", bytes_)
        tokens = common_tokens(self._session.plan, part, place.device)
        start = time.perf_counter()
        measured, assembly, shrunk = self._measure(predicted, pools)
        return msgspec.structs.replace(
            base,
            result=measured.result,
            checks=(
                *all_checks(bytes_, predicted, measured, assembly),
                *agreement_check(part, measured.broken, assembly.agreement, tokens),
            ),
            violation=measured.violation,
            shrunk=shrunk,
            latencies=assembly.memory.latencies.figures(),
            compiled=compile_counts(),
            reserve=assembly.reserve.use(),
            wall_s=time.perf_counter() - start,
        )

    def _predict(self, *, watched: bool) -> Measured:
        """What counts alone say."""
        session, workload = self._session, self._workload
        requests = self._watch.watched(iter(workload)) if watched else iter(workload)
        return measured_counts(session, requests, num_served(session, len(workload)))

    def _build(self) -> tuple[Pools, Check]:
        """This rank's pools, and whether they take the planned bytes."""
        plan, part, device = self._session.plan, self._part, self._place.device
        counts = cuda_counts(device)
        pools = build(
            plan,
            device,
            pp_rank=part.pp_rank,
            dcp_rank=part.dcp_rank,
            kv_scale=self._options.kv_scale,
        )
        on_cuda = device.type == "cuda"
        cuda = cuda_bytes(pools, counts, cuda_counts(device)) if on_cuda else None
        return pools, bytes_check(plan, pools, part.pp_rank, cuda)

    def _measure(self, predicted: Measured, pools: Pools) -> tuple[Measured, Assembly, int | None]:
        """The replay itself, with what is recorded of it."""
        session, options, shrunk = self._session, self._options, None
        server = server_of(session.plan, session.options.choices)

        with one_thread(), self._recorded(server) as made:
            write = None if made is None else made.write
            assembly = assemble(
                server, pools, self._place, options, write, self._part, session.stop
            )
            peak = Snapshot(assembly.memory, session.launch, predicted.result.pools[0].peak_step)
            measured = measure(
                session,
                server,
                self._watch.watched(iter(self._workload)),
                assembly,
                total=num_served(session, len(self._workload)),
                observers=(peak,) if wants_state(options) else (),
            )
            if made is not None:
                made.close()
                if measured.broken is None and not measured.result.complete:
                    made.mark_partial()
                if measured.broken is not None and options.shrink:
                    shrunk = shrink(
                        made,
                        lambda: assemble(server, blank(pools), self._place, options, played=True),
                        session.stop,
                    )
        if options.record is not None and peak.state is not None:
            write_whole(options.record, state_text(peak.state))
        return measured, assembly, shrunk

    def _recorded(self, server: Server) -> AbstractContextManager[Recording | None]:
        """Where operations are written, if anybody needs them."""
        record = self._options.record
        target = record if record is not None and record.suffix == OPERATIONS_SUFFIX else None
        if target is None and not self._options.shrink:
            return nullcontext()
        return recording(target, header_of(server, self._session.plan.model.name))


def unused(base: Outcome, reason: str, bytes_: Check | None = None) -> Outcome:
    """A trial whose pools were not used; with `bytes_` they were built."""
    made = () if bytes_ is None else (bytes_,)
    rest = [checks.not_checked(name, reason) for name in checks.ALL[len(made) :]]
    return msgspec.structs.replace(base, checks=(*made, *rest))


def shrink(
    made: Recording, fresh: Callable[[], Assembly], stop: Callable[[], bool] | None
) -> int | None:
    """Cut a recording to its shortest prefix that still fails; None where it does not fail alone."""
    found = shortest(lambda: open_events(made.path), fresh, stop)
    if found is None or found.broken is None:
        return None
    made.cut(found.num_operations)
    return found.num_operations


def wants_state(options: PoolOptions) -> bool:
    """Whether the pools at their fullest are to be written down."""
    return options.record is not None and options.record.suffix == STATE


def all_checks(
    bytes_: Check, predicted: Measured, measured: Measured, assembly: Assembly
) -> tuple[Check, ...]:
    """The six checks of a replay over pools."""
    result, broken = measured
    if broken is not None:
        return stopped_at(broken, (bytes_,))
    made = witness_checks(assembly.auditor, assembly.reserve, assembly.stamper)
    if result.complete:
        return (bytes_, *made, peaks_check(predicted.result, result))
    return (bytes_, *made, checks.not_checked(checks.PEAKS, "the replay was stopped"))
