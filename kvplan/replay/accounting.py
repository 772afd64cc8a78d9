"""The scheduling loop over counts: steps in which nothing happens are taken together."""

from __future__ import annotations

from kvplan.replay.batch import Decode
from kvplan.replay.scheduler import Scheduler
from kvplan.replay.sliding_store import SlidingStore

NO_STEPS = (0, 0)


class CountingScheduler(Scheduler):
    """Decides as `Scheduler` does, and can take decode steps together that only change lengths."""

    def jump(self, batch: Decode, at_most: int | None) -> tuple[int, int]:
        """Take the quiet steps behind a launched one at once; how many, and the tokens they took.

        In these nobody ends, comes, starts a prompt or gives slots back. `at_most` is how many
        pass before the next arrival, if there is one.
        """
        running, store = self.running, self.store
        if batch.sequences is not running.sequences or self.chunked is not None:
            return NO_STEPS  # somebody left, or is to go on
        step, next_end = running.lockstep, self._ends.next_tick()
        assert next_end is not None, "whoever decodes has an end"
        num_steps = step.steps_within(next_end - 1 - step.generated)
        # once the batch is full no pass looks at the queue until somebody leaves
        if not running.full or self._sliding is not None:
            if self.waiting.requests:
                return NO_STEPS
            if at_most is not None and at_most < num_steps:
                num_steps = at_most
        if self._sliding is not None:
            num_steps = min(num_steps, self._kept_steps(self._sliding))
        if num_steps <= 0:
            return NO_STEPS
        num_pages, wanted_tokens = running.demand(num_steps)
        if wanted_tokens > store.memory.available or self._sliding is not None:
            at_most_pages = store.quiet_pages(len(running.sequences))
            if num_pages > at_most_pages:
                num_steps = self._affordable(num_steps, at_most_pages)
                if not num_steps:
                    return NO_STEPS
                num_pages, wanted_tokens = running.demand(num_steps)
            store.reclaim(wanted_tokens)
        store.memory.decode(running.sequences, num_pages)
        running.launch(num_steps)
        step.take_in(num_steps)
        self.ratio.step(num_steps)
        return num_steps, num_pages * store.page_size

    def _kept_steps(self, sliding: SlidingStore) -> int:
        """Decode steps in which nobody gives sliding slots back."""
        num_tokens = sliding.quiet_tokens(self.running.sequences)
        # whoever gives slots back does so as a step is launched, before its tokens
        return self.running.lockstep.steps_within(num_tokens) + 1 if num_tokens >= 0 else 0

    def _affordable(self, too_many: int, num_pages: int) -> int:
        """As many steps, fewer than these, as so many pages surely hold."""
        fits, fails = 0, too_many
        while fails - fits > 1:
            middle = (fits + fails) // 2
            if self.running.demand(middle)[0] <= num_pages:
                fits = middle
            else:
                fails = middle
        return fits
