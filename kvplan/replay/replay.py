"""A workload through the scheduling model: arrivals by the clock, one turn after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from kvplan.replay.accounting import CountingScheduler
from kvplan.replay.assumptions import Assumptions
from kvplan.replay.batch import Decode, Step
from kvplan.replay.checks import long_row
from kvplan.replay.dealt_feed import DealtFeed
from kvplan.replay.feed import Feed
from kvplan.replay.intake import Intake
from kvplan.replay.keys import key_of
from kvplan.replay.memory import KvMemory
from kvplan.replay.meter import Meter
from kvplan.replay.open_store import open_store
from kvplan.replay.requests import Request
from kvplan.replay.scheduler import Scheduler
from kvplan.replay.sequence import Sequence
from kvplan.replay.server import Server
from kvplan.units import floor_page

STALLED = "never admitted: an empty pool has no room for it"


class Turn(msgspec.Struct, frozen=True, gc=False):
    """One step of the loop, and the decode steps behind it that were taken together with it.

    These took `grown` tokens, step by step about as many.
    """

    step: Step
    num_steps: int
    grown: int
    start_ns: int
    duration_ns: int


class Replay:
    """Iterate to run it to the end; `meter` has the figures so far at any time.

    With `jumps` uneventful decode steps are taken together, which memory over real slots cannot.
    Of `dp_ranks` ranks, to which the requests are dealt out in turn, this is the first.
    """

    def __init__(
        self,
        server: Server,
        memory: KvMemory,
        requests: Iterable[Request],
        assumptions: Assumptions,
        *,
        jumps: bool,
        dp_ranks: int = 1,
    ) -> None:
        self.server = server
        self.assumptions = assumptions
        self.store = open_store(server, memory)
        self._jumping = CountingScheduler(server, self.store) if jumps else None
        self.scheduler: Scheduler = self._jumping or Scheduler(server, self.store)
        self.meter = Meter(self.scheduler, floor_page(server.num_tokens, server.page_size))
        self.now_ns = 0
        self._intake = Intake(server)
        self._decode_ns = assumptions.decode_ns
        self._jumped_ns = 0  # how long the steps took that the latest turn took together
        self._blank_after = -1  # steps before the latest turn without a batch
        self._feed = Feed(requests) if dp_ranks == 1 else DealtFeed(requests, dp_ranks, assumptions)

    def __iter__(self) -> Iterator[Turn]:
        feed, scheduler = self._feed, self.scheduler
        idle = scheduler.is_idle()
        while True:
            if idle:
                feed.skip_others()
            next_ns = feed.next_ns
            if idle:
                if next_ns is None:
                    return
                scheduler.step()  # an idle turn starts the ratio anew
                self.now_ns = max(self.now_ns, next_ns)
            if next_ns is not None and next_ns <= self.now_ns:
                self._take_arrivals()
            turn = self._turn()
            yield turn
            idle = turn.step.batch is None and scheduler.is_idle()

    def _turn(self) -> Turn:
        start, step, num_steps, grown = self.now_ns, self.scheduler.step(), 1, 0
        batch, meter, self._jumped_ns = step.batch, self.meter, 0
        if (waiting := self.scheduler.waiting.requests) and len(waiting) > meter.peak_waiting:
            meter.peak_waiting = len(waiting)
        if isinstance(batch, Decode):
            self.now_ns = start + self._decode_ns
            if step.finished or step.retracted or step.aborted:
                self._see_off(step, start)
            if self._jumping is not None:
                num_steps, grown = self._jump(self._jumping, batch)
            meter.decode_steps += num_steps
        elif batch is not None:
            self.now_ns = start + self.assumptions.prefill_ns(batch.num_computed())
            meter.prefill(batch, start)
            if step.finished or step.retracted or step.aborted:
                self._see_off(step, start)
        else:
            self._see_off(step, start)
            self._unblock()
        return Turn(step, num_steps, grown, start, self.now_ns - start)

    def _see_off(self, step: Step, start_ns: int) -> None:
        """Count who left in a step, and let the clients have their answers."""
        self.meter.leave(step, start_ns)
        if self.server.speculation is not None:
            self._refuse_long_rows(step)
        for sequence in step.finished + step.aborted:
            if sequence.session is not None:
                self._feed.answered(sequence.session, self.now_ns)

    def _refuse_long_rows(self, step: Step) -> None:
        """Broken for a request whose reserve came to lie beyond its row."""
        for sequence in step.finished:
            if sequence.allocated() > self.server.row_width:
                raise long_row(sequence.rid, sequence.allocated(), self.server.row_width)

    def _jump(self, scheduler: CountingScheduler, batch: Decode) -> tuple[int, int]:
        """Take quiet decode steps up to the next event together with the one before them.

        Returns how many steps that makes, and the tokens that the quiet ones took.
        """
        step_ns, next_ns = self._decode_ns, self._feed.next_ns
        # up to the step that starts as the next request comes, or after it
        at_most = None if next_ns is None else -((self.now_ns - next_ns) // step_ns)
        num_steps, grown = scheduler.jump(batch, at_most)
        if num_steps:
            self._jumped_ns = num_steps * step_ns
            self.now_ns += self._jumped_ns
        return 1 + num_steps, grown

    def _unblock(self) -> None:
        """A blank turn may have freed something; a second one had nothing left to wait for."""
        num_steps = self.meter.prefill_steps + self.meter.decode_steps
        if num_steps == self._blank_after and not self.scheduler.is_idle():
            self._reject(self.scheduler.drop_head(), STALLED)
        self._blank_after = num_steps

    def _take_arrivals(self) -> None:
        feed, now_ns = self._feed, self.now_ns
        while (time_ns := feed.next_ns) is not None and time_ns <= now_ns:
            request = feed.take()
            if request is None:
                continue
            self.meter.num_requests += 1
            reason = self._intake.refusal(request.input_len)
            if reason is None:
                self.scheduler.waiting.requests.append(self._sequence(request, time_ns))
            else:
                self.meter.rejections[reason] += 1
                self._feed.answered(request.session, self._met_ns(time_ns))

    def _met_ns(self, time_ns: int) -> int:
        """When the loop looked at an arrival: before one of the steps that were taken together."""
        late_ns = min(self.now_ns - time_ns, self._jumped_ns)
        return self.now_ns - late_ns // self._decode_ns * self._decode_ns

    def _sequence(self, request: Request, time_ns: int) -> Sequence:
        wish = self.assumptions.wish(request)
        max_new = self._intake.clip(request.input_len, wish)
        if max_new < request.output_len:
            self.meter.num_clipped += 1
        return Sequence(
            request.rid,
            key_of(request),
            request.input_len,
            max_new,
            request.output_len,
            self.store.cache.no_lock,
            time_ns,
            request.session,
        )

    def _reject(self, sequence: Sequence, reason: str) -> None:
        self.meter.rejections[reason] += 1
        self._feed.answered(sequence.session, self.now_ns)
