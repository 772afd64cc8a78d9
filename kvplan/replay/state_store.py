"""Who holds which KV and which recurrent state: requests, the prefix cache, or nobody."""

from __future__ import annotations

from kvplan.errors import OutOfSlots
from kvplan.replay.memory import StateMemory
from kvplan.replay.prefix_cache import Slots
from kvplan.replay.sequence import Part, Sequence
from kvplan.replay.server import Server, StatePool
from kvplan.replay.state_prefix_cache import StatePrefixCache
from kvplan.replay.store import KvStore
from kvplan.units import floor_page


class StateStore(KvStore):
    """A request holds a state, and tracking slots in which states worth caching are kept.

    Without tracking slots the running state itself is copied for the cache.
    """

    memory: StateMemory
    cache: StatePrefixCache

    def __init__(self, server: Server, pool: StatePool, memory: StateMemory) -> None:
        super().__init__(server, memory)
        self.cache = StatePrefixCache(server.page_size, memory, server.eviction_policy)
        self.pool = pool

    def reachable_states(self) -> int:
        """State slots that are free or could be by evicting."""
        return self.memory.available_states + self.cache.evictable_states

    def match(self, sequence: Sequence) -> None:
        super().match(sequence)
        branch = floor_page(sequence.branch_len, self.pool.grid)
        sequence.branch_len = branch if branch > sequence.prefix_len else 0

    def extend(self, parts: list[Part], num_tokens: int) -> Slots | None:
        for part in parts:
            if not part.sequence.holds_row:
                part.sequence.states = tuple(
                    self._take_state(part.sequence) for _ in range(self.pool.slots_per_request)
                )
        return super().extend(parts, num_tokens)

    def checkpoint(self, sequence: Sequence, stop: int) -> None:
        """Hand over whole pages and the state behind them, as far as a state was kept."""
        if not self.caching:
            return
        end = self._tracked(sequence, stop)
        if end <= sequence.protected_len:
            return
        state = sequence.states[-1]
        if not sequence.finished:
            # the cache gets a copy, or the tracking slot and the request a new one
            state = self._take_state(sequence)
        kept = self.cache.keep(
            sequence.key,
            self.memory.row_slots(sequence, sequence.protected_len, end),
            state,
            sequence.lock.node,
            sequence.counted_len,
        )
        self._hold(sequence, kept.node, kept.prefix_len)
        if not sequence.finished:
            if not kept.took_state:
                self.memory.free_states(state)
            elif self.pool.tracking_slots:
                kept.node.state = sequence.states[-1]
                sequence.states = (*sequence.states[:-1], state)
        elif kept.took_state:
            sequence.states = sequence.states[:-1]

    def release(self, sequence: Sequence, *, keep: bool) -> None:
        super().release(sequence, keep=keep)
        for state in sequence.states:
            self.memory.free_states(state)
        sequence.states = ()

    def _tracked(self, sequence: Sequence, stop: int) -> int:
        """The last position up to `stop` whose state was kept; 0 if none was."""
        if not self.pool.tracking_slots:
            return floor_page(stop, self.page_size)
        if sequence.finished:
            end = floor_page(stop, self.pool.interval)
            return end if end > sequence.stop else 0
        computed = floor_page(stop - sequence.prefix_len, self.pool.grid)
        branch = sequence.branch_len
        if sequence.prefix_len < branch < sequence.prefix_len + computed:
            return branch
        return sequence.prefix_len + computed if computed else 0

    def _take_state(self, sequence: Sequence) -> Slots:
        if not self.memory.available_states:
            self.cache.evict_states(1)
        state = self.memory.alloc_state(sequence.rid)
        if state is None:
            raise OutOfSlots(
                f"no state slot is left for request '{sequence.rid}'",
                hint="the engine would stop here: --max-mamba-cache-size is too small",
            )
        return state
