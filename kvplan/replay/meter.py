"""What a replay counts: hits, retractions, rejections, queueing, waste."""

from __future__ import annotations

from array import array
from collections import Counter

from kvplan.replay.batch import Prefill, Step
from kvplan.replay.scheduler import Scheduler

LONGEST_NS = (1 << 63) - 1  # 292 years: who waited longer counts as that


class Meter:
    """Counts in tokens, requests, steps or ns; how full the pools are, `Gauges` see.

    Hits count at a request's first part only; those of retracted requests apart.
    """

    def __init__(self, scheduler: Scheduler, capacity: int) -> None:
        self.capacity = capacity
        self.rejections: Counter[str] = Counter()
        self.num_requests = 0
        self.num_clipped = 0
        self.num_finished = 0
        self.num_aborted = 0
        self.num_retractions = 0
        self.first_retraction_ns: int | None = None
        self.hit_tokens = 0
        self.computed_tokens = 0
        self.rehit_tokens = 0
        self.recomputed_tokens = 0
        self.output_tokens = 0  # of the answers that finished
        self.wasted_tokens = 0  # of last pages, summed over finished requests
        self.prefill_steps = 0
        self.decode_steps = 0
        self.peak_waiting = 0
        self.waits_ns = array("q")
        self._running = scheduler.running
        self._page_size = scheduler.store.page_size

    @property
    def peak_running(self) -> int:
        """Requests that decoded together at most."""
        return self._running.peak

    def leave(self, step: Step, start_ns: int) -> None:
        """Requests that a step took out of the batch."""
        if step.retracted:
            self.num_retractions += len(step.retracted)
            if self.first_retraction_ns is None:
                self.first_retraction_ns = start_ns
        self.num_aborted += len(step.aborted)
        self.num_finished += len(step.finished)
        page_size = self._page_size
        for sequence in step.finished:
            self.output_tokens += sequence.target
            if page_size > 1:
                self.wasted_tokens += -sequence.committed() % page_size

    def prefill(self, batch: Prefill, start_ns: int) -> None:
        """A step that computes prompts."""
        self.prefill_steps += 1
        for part in batch.parts:
            sequence, prefix_len = part.sequence, part.prefix_len
            if sequence.num_retractions:
                self.recomputed_tokens += part.stop - prefix_len
                if sequence.num_parts == 1:
                    self.rehit_tokens += prefix_len
                continue
            self.computed_tokens += part.stop - prefix_len
            if sequence.num_parts == 1:
                self.hit_tokens += prefix_len
                waited = start_ns - sequence.arrival_ns
                self.waits_ns.append(waited if waited < LONGEST_NS else LONGEST_NS)
