"""The engine's scheduling loop, step by step: what runs, what it holds, who gives way."""

from __future__ import annotations

from itertools import count

from kvplan.replay.batch import Batch, Decode, Prefill, Step
from kvplan.replay.budget import PrefillBudget, Stop
from kvplan.replay.calendar import Calendar
from kvplan.replay.lockstep import Lockstep
from kvplan.replay.ratio import NewTokenRatio, ratio_after_retraction
from kvplan.replay.retraction import retract
from kvplan.replay.running import Running
from kvplan.replay.sequence import Sequence
from kvplan.replay.server import Server
from kvplan.replay.sliding_budget import SlidingBudget
from kvplan.replay.sliding_store import SlidingStore
from kvplan.replay.store import KvStore
from kvplan.replay.waiting import WaitingQueue


class Scheduler:
    """One replica. Arrivals go to `waiting`, then each `step` is one turn of the engine's loop.

    A step schedules and launches a batch, then takes results in: its own, or with the overlapped
    loop those of the batch before.
    """

    def __init__(self, server: Server, store: KvStore) -> None:
        self.store = store
        self.waiting = WaitingQueue(server, store)
        self.running = Running(Lockstep(server.page_size, server.speculation))
        self.ratio = NewTokenRatio(server.conservativeness)
        self.chunked: Sequence | None = None
        self._server = server
        self._overlaps = server.overlap
        self._sliding = store if isinstance(store, SlidingStore) else None
        self._budget = (
            PrefillBudget(server, store)
            if self._sliding is None
            else SlidingBudget(server, self._sliding)
        )
        self._mixes = server.mixed_chunk and server.chunked_prefill_size is not None
        self._last: Batch | None = None
        self._ends: Calendar[Sequence] = Calendar()
        self._retracted: tuple[Sequence, ...] = ()
        self._aborted: tuple[Sequence, ...] = ()
        self._finished: tuple[Sequence, ...] = ()

    def step(self) -> Step:
        """One turn of the loop."""
        self._retracted = self._aborted = self._finished = ()
        chunked, last = self.chunked, self._last
        if chunked is not None:
            self._publish_chunk(chunked)
        if isinstance(last, Prefill):
            self._merge_prefilled(last)
        batch: Batch | None = None
        if chunked is not None or self.waiting.requests:
            batch = self._prefill()
        if batch is None:
            batch = self._decode()
        results = last if self._overlaps else batch
        if results is None:
            if batch is None:
                self.ratio.reset()
        elif isinstance(results, Decode):
            self._take_in_decode(results)
        else:
            self.store.memory.free_group_begin()
            self._take_in_prefill(results)
            self.store.memory.free_group_end()
        self._last = batch
        return Step(batch, self._retracted, self._aborted, self._finished)

    def is_idle(self) -> bool:
        """Whether nothing waits, runs, or is in flight."""
        return not (
            self.waiting.requests
            or self.running.sequences
            or self.chunked is not None
            or (self._overlaps and self._last is not None)
        )

    def drop_head(self) -> Sequence:
        """Take out what blocks a stuck loop: the cut prompt, or the head of the queue."""
        sequence = self.chunked
        if sequence is None:
            return self.waiting.requests.popleft()
        self.chunked = None
        self.store.release(sequence, keep=False)
        return sequence

    def _publish_chunk(self, sequence: Sequence) -> None:
        """Put what is computed of a cut prompt into the cache; the next part starts behind it."""
        if sequence.stop > sequence.prefix_len:
            self.store.checkpoint(sequence, sequence.stop)
            sequence.prefix_len = sequence.stop

    def _merge_prefilled(self, last: Prefill) -> None:
        """Requests whose prompt was computed in the last batch decode from now on."""
        ready: list[Sequence] = []
        for part in last.parts:
            if not part.is_middle and not part.sequence.finished:
                ready.append(part.sequence)
        if len(ready) < len(last.parts) or last.mixed is not None:
            self.running.full = False
        if ready:
            self.running.join(ready, in_front=last.mixed is not None)

    def _prefill(self) -> Prefill | None:
        """A batch of new prompts and of the cut one's next part, if there is room."""
        running = self.running
        if self._sliding is not None or not running.sequences:
            running.full = False
        chunked, num_rows = self.chunked, self._rows_left()
        if chunked is None:
            if num_rows <= 0:
                running.full = True
            if running.full:
                return None
        self.waiting.arrange()
        num_mixed = len(running.sequences) if self._mixes else 0
        budget = self._budget
        budget.open(running.expected_new(self.ratio.current), num_mixed)
        if chunked is not None:
            budget.continue_chunked(chunked)
            num_rows = self._rows_left(len(budget.parts))  # the cut prompt has its row already
        self._admit_waiting(budget, num_rows)
        self.chunked = budget.chunked
        if not budget.parts:
            return None
        out_cache_loc = self.store.extend(budget.parts, budget.num_tokens)
        mixed = self._mix() if self._mixes else None
        return Prefill(budget.parts, budget.num_tokens, out_cache_loc, mixed)

    def _admit_waiting(self, budget: PrefillBudget, num_rows: int) -> None:
        """Admit from the head of the queue, nobody out of turn, until a budget is used up."""
        running, queue, parts = self.running, self.waiting.requests, budget.parts
        if (self._mixes or parts) and budget.verdict() is Stop.OTHER:
            return
        while queue:
            if len(parts) >= num_rows:
                running.full = True
            if running.full:
                return
            sequence = queue[0]
            self.store.match(sequence)
            stop = budget.admit(sequence)
            if stop is None:
                queue.popleft()
                sequence.retracted = False
                stop = budget.verdict()
            if stop is not None:
                if stop is Stop.NO_MEMORY:
                    running.full = bool(parts or running.sequences)
                return

    def _rows_left(self, num_held: int = 0) -> int:
        """Requests that one pass may hold beside the running ones."""
        by_batch = self._server.max_running_requests - len(self.running.sequences)
        by_rows = self.store.memory.free_rows + num_held
        return by_batch if by_batch < by_rows else by_rows

    def _decode(self) -> Decode | None:
        """One step more for every running request; whoever must gives way."""
        running, store = self.running, self.store
        finishing = self._set_finishing_aside()
        if not running.sequences:
            return None
        num_pages, wanted_tokens = running.demand()
        if store.reclaim(num_pages * store.page_size):
            self.ratio.step()
            return self._launch_decode(num_pages, wanted_tokens)
        if finishing:
            return None  # their slots come back at the end of this step
        self._retract()
        return self._launch_decode(*running.demand()) if running.sequences else None

    def _mix(self) -> Decode | None:
        """Running requests ride a prefill step where memory is left; else they sit it out."""
        self._set_finishing_aside()
        num_pages, wanted_tokens = self.running.demand()
        if self.running.sequences and self.store.reclaim(num_pages * self.store.page_size):
            return self._launch_decode(num_pages, wanted_tokens)
        return None

    def _launch_decode(self, num_pages: int, wanted_tokens: int) -> Decode:
        running = self.running
        running.launch()
        sequences = running.sequences
        return Decode(sequences, self.store.decode(sequences, num_pages, wanted_tokens))

    def _set_finishing_aside(self) -> bool:
        """Requests whose last output is in flight take no further step; whether there are any."""
        last = self._last
        if last is None or not self._overlaps:
            return False
        finishing: list[Sequence] = []
        decoded: Batch | None = last
        if isinstance(last, Prefill):
            for part in last.parts:
                sequence = part.sequence
                if sequence.lockstep is not None and sequence.outputs() + 1 >= sequence.max_new:
                    finishing.append(sequence)
            decoded = last.mixed
        if decoded is not None:
            for sequence in self._ends.at(self.running.lockstep.generated + 1):
                if sequence.target >= sequence.max_new:  # else a stop token ends it, unforeseen
                    finishing.append(sequence)
        if not finishing:
            return False
        self.running.leave(finishing)
        return True

    def _retract(self) -> None:
        running = self.running
        self._retracted, self._aborted = retract(running, self.store)
        for sequence in self._retracted + self._aborted:
            self._forget_end(sequence)
        self.ratio.current = ratio_after_retraction(
            (sequence.outputs(), sequence.max_new) for sequence in running.sequences
        )
        self.waiting.requests.extend(self._retracted)

    def _take_in_prefill(self, batch: Prefill) -> None:
        running, mixed = self.running, batch.mixed
        lockstep = running.lockstep
        num_tokens = lockstep.take_in() if mixed else 0
        ended: list[Sequence] = []
        for part in batch.parts:
            sequence = part.sequence
            if part.is_middle or sequence.finished or sequence.retracted:
                continue
            if mixed and sequence.lockstep is not None:
                missing = sequence.target - sequence.outputs()  # it grew with the others
            else:
                missing = running.add_first_output(sequence)
            if missing <= 0:
                self._finish([sequence])
                ended.append(sequence)
                continue
            self.store.checkpoint(sequence, part.stop)
            sequence.prefix_len = part.stop
            end = sequence.end_tick = lockstep.generated + missing
            self._ends.add(end, sequence)
        if ended:
            self._finished = tuple(ended)
        if mixed:
            self._finish_due(self._ends.take(lockstep.generated), mixed, num_tokens)

    def _take_in_decode(self, batch: Decode) -> None:
        lockstep = self.running.lockstep
        num_tokens = lockstep.take_in()
        if due := self._ends.take(lockstep.generated):
            self.store.memory.free_group_begin()
            self._finish_due(due, batch, num_tokens)
            self.store.memory.free_group_end()

    def _finish_due(self, due: list[Sequence], batch: Decode, num_tokens: int) -> None:
        """End the requests for which the results were the last, in batch order."""
        if len(due) > 1:
            place = dict(zip(batch.sequences, count(), strict=False))
            due.sort(key=place.__getitem__)
        self._finish(due, num_tokens if self._server.speculation is not None else 0)
        self._finished += tuple(due)

    def _finish(self, sequences: list[Sequence], late_tokens: int = 0) -> None:
        """A result was the last of these; it brought so many tokens to those set aside before."""
        running: list[Sequence] = []
        for sequence in sequences:
            if sequence.lockstep is None:
                sequence.end(late_tokens)
            else:
                running.append(sequence)
        if running:
            self.running.leave(running)
            for sequence in running:
                sequence.end()
        for sequence in sequences:
            self.store.release(sequence, keep=True)

    def _forget_end(self, sequence: Sequence) -> None:
        if sequence.end_tick >= 0:
            self._ends.remove(sequence.end_tick, sequence)
            sequence.end_tick = -1
