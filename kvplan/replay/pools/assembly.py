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

    @property
    def observers(self) -> tuple[Observer, ...]:
        """Those who look on after each turn."""
        return (self.auditor,) if self.recorder is None else (self.recorder, self.auditor)


def assemble(
    server: Server,
    pools: Pools,
    place: Place,
    options: PoolOptions,
    write: Callable[[Operation], None] | None = None,
) -> Assembly:
    """Allocator, books, audit, reserve rule, and stamps if asked for, over built pools.

    `write` takes every operation on them.
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
        stamper = Stamper(memory, stamp_doors(pools))
        memory.watchers.append(stamper)
    return Assembly(memory, books, auditor, reserve, stamper, recorder)


def stamp_doors(pools: Pools) -> list[Door]:
    """Doors of the target's KV, and of drafts that use the same slots."""
    doors = doors_of(pools.kv)
    for draft in pools.drafts:
        if not isinstance(pools.kv, SwaPool) and draft.num_slots == pools.kv.num_slots:
            doors += doors_of(draft)
    return doors
