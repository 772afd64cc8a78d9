"""The state of the pools at one step of a replay: who holds which slots."""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.allocators.paged import PagedAllocator
from kvplan.allocators.sliding import SlidingAllocator
from kvplan.id_runs import mapped_runs, runs
from kvplan.planner import Launch
from kvplan.replay.pools.audit import nodes_below
from kvplan.replay.pools.plan_states import PlanStateMemory
from kvplan.replay.pools.watched import Tenancy, WatchedMemory
from kvplan.replay.prefix_cache import Node
from kvplan.replay.replay import Replay, Turn
from kvplan.state.recorded import (
    HeldRow,
    MappedRun,
    PagedPool,
    RecordedState,
    Run,
    StateSlots,
    recorded_launch,
)


class Snapshot:
    """Looks on a replay and keeps the state after one of its steps; None if it never came."""

    def __init__(self, memory: WatchedMemory, launch: Launch, step: int) -> None:
        self.state: RecordedState | None = None
        self._memory = memory
        self._launch = launch
        self._step = step
        self._num_steps = 0
        self._root: Node | None = None

    def attach(self, run: Replay, total: int | None) -> None:  # noqa: ARG002
        """The replay whose tree holds what is cached."""
        self._root = run.store.cache.root

    def see(self, turn: Turn) -> None:
        """Take the picture if this was the step."""
        self._num_steps += turn.num_steps
        if self._num_steps - 1 == self._step and self._root is not None:
            self.state = recorded_state(self._memory, self._root, self._launch, self._step)


def recorded_state(memory: WatchedMemory, root: Node, launch: Launch, step: int) -> RecordedState:
    """Everything that is held between two steps."""
    inner = memory.inner
    allocator, rows = inner.allocator, inner.rows
    return RecordedState(
        step=step,
        launch=recorded_launch(launch),
        page_size=memory.page_size,
        rows=rows.num_rows + 1,
        row_width=rows.max_context_len,
        kv=paged_pool(allocator.full if isinstance(allocator, SlidingAllocator) else allocator),
        sliding=paged_pool(allocator.swa) if isinstance(allocator, SlidingAllocator) else None,
        full_to_swa=mapping(allocator) if isinstance(allocator, SlidingAllocator) else (),
        cached=runs(slot for node in nodes_below(root) for slot in node.slots.tolist()),
        requests=tuple(held_row(memory, each) for each in memory.tenancies.values()),
        state=state_slots(inner, root) if isinstance(inner, PlanStateMemory) else None,
    )


def paged_pool(allocator: PagedAllocator) -> PagedPool:
    """A pool's free list in its order."""
    return PagedPool(
        tokens=allocator.size,
        free_pages=runs(allocator.free_list.listed().tolist()),
        staged_pages=runs(allocator.free_list.staged().tolist()),
    )


def mapping(allocator: SlidingAllocator) -> tuple[MappedRun, ...]:
    """Full slots that have a sliding slot."""
    table = allocator.full_to_swa[:-1]
    mapped = (table > 0).nonzero().flatten()
    return mapped_runs(zip(mapped.tolist(), table[mapped].tolist(), strict=True))


def held_row(memory: WatchedMemory, tenancy: Tenancy) -> HeldRow:
    """One request with what its row holds; of state slots its own one and the tracking ones."""
    sequence = tenancy.sequence
    slots = memory.inner.row_slots(sequence, 0, sequence.allocated())
    states = [int(state[0]) for state in sequence.states]
    return HeldRow(
        rid=tenancy.name,
        row=sequence.row,
        seq_len=sequence.committed(),
        slots=runs(slots.tolist()),
        cached_len=sequence.protected_len,
        state_slot=states[0] if states else None,
        tracking_slots=tuple(states[1:]),
    )


def state_slots(memory: PlanStateMemory, root: Node) -> StateSlots:
    """Slots of recurrent state: free ones, and those that the tree keeps."""
    return StateSlots(
        slots=memory.states.size,
        free=runs(memory.states.free_slots().tolist()),
        cached=tuple(cached_states(root)),
    )


def cached_states(root: Node) -> Iterator[Run]:
    """State slots of the tree's nodes."""
    yield from runs(int(node.state[0]) for node in nodes_below(root) if node.state is not None)
