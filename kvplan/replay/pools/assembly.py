"""The memory of a replay over pools with everybody who looks on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kvplan.pools.build import Pools
from kvplan.pools.sliding import SwaPool
from kvplan.replay.pools.audit import Auditor, ReserveRule
from kvplan.replay.pools.books import Books
from kvplan.replay.pools.build import plan_memory
from kvplan.replay.pools.devices import Place
from kvplan.replay.pools.doors import Door, doors_of
from kvplan.replay.pools.plan_states import PlanStateMemory, StateBooks
from kvplan.replay.pools.played_stamps import PlayedStamper
from kvplan.replay.pools.ranks import Agreement, Part
from kvplan.replay.pools.recorder import Recorder
from kvplan.replay.pools.stamps import Stamper
from kvplan.replay.pools.watched import WatchedMemory
from kvplan.replay.run import Observer
from kvplan.replay.server import Server
from kvplan.replay.trace import PoolOptions
from kvplan.replay.workloads.operations import Operation


class Assembly(NamedTuple):
    """Memory and its watchers; without stamps nothing is written to the KV buffers."""

    memory: WatchedMemory
    books: Books
    auditor: Auditor
    reserve: ReserveRule
    stamper: Stamper | None
    recorder: Recorder | None
    agreement: Agreement | None

    @property
    def observers(self) -> tuple[Observer, ...]:
        """Those who look on after each turn."""
        found: list[Observer] = [self.auditor]
        if self.recorder is not None:
            found.insert(0, self.recorder)
        if self.agreement is not None:
            found.append(self.agreement)
        return tuple(found)

    def audit(self) -> None:
        """Look at everything at once; Broken for the first thing that is wrong."""
        self.auditor.audit()
        if isinstance(self.stamper, PlayedStamper):
            self.stamper.read_all()

    def abandon(self) -> None:
        """An invariant is broken: write what was recorded, and tell the other ranks."""
        if self.recorder is not None:
            self.recorder.flush()
        if self.agreement is not None:
            self.agreement.fail()


def assemble(
    server: Server,
    pools: Pools,
    place: Place,
    options: PoolOptions,
    write: Callable[[Operation], None] | None = None,
    part: Part | None = None,
    stop: Callable[[], bool] | None = None,
    *,
    played: bool = False,
) -> Assembly:
    """Allocator, books, audit, reserve rule, and stamps if asked for, over built pools.

    `write` takes every operation on them. With `part` of several ranks they compare their steps,
    and stop together once one of them wants to. `played` operations have no tokens to stamp.
    """
    pools.rows.clear()
    inner = plan_memory(server, pools, place.backend)
    memory = WatchedMemory(inner)
    books = Books(inner.allocator)
    states = StateBooks(inner) if isinstance(inner, PlanStateMemory) else None
    auditor = Auditor(memory, books, options.verify_every, states)
    reserve = ReserveRule(
        pools.plan.reserves.alloc_reserve_per_decode,
        server.page_size,
        inner.rows.max_context_len,
    )
    recorder = None if write is None else Recorder(books, write)
    # the recorder names what is freed by the books, so it hears of it first
    memory.watchers += [*([recorder] if recorder else []), books, auditor, reserve]
    memory.watchers += [states] if states else []
    stamper = None
    if options.stamp:
        doors = stamp_doors(pools)
        num_slots = len(books.owner) * server.page_size
        stamper = PlayedStamper(memory, doors, num_slots) if played else Stamper(memory, doors)
        memory.watchers.append(stamper)
    agreement = None
    if part is not None and part.num_ranks > 1:
        agreement = Agreement(part, place.device, stop)
        memory.watchers.append(agreement)
    return Assembly(memory, books, auditor, reserve, stamper, recorder, agreement)


def blank(pools: Pools) -> Pools:
    """The same pools as they were built: nothing that an earlier replay wrote is left."""
    for pool in (pools.kv, *pools.drafts):
        for entry in pool.tensors():
            if not entry.is_view:
                entry.tensor.zero_()
    for part in pools.state.slot_tensors() if pools.state is not None else ():
        part.tensor.fill_(part.blank)
    return pools


def stamp_doors(pools: Pools) -> list[Door]:
    """Doors of the target's KV, and of drafts that use the same slots."""
    doors = doors_of(pools.kv)
    for draft in pools.drafts:
        if not isinstance(pools.kv, SwaPool) and draft.num_slots == pools.kv.num_slots:
            doors += doors_of(draft)
    return doors
