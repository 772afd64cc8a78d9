"""The scheduling loop over counts: steps in which nothing happens are taken together."""

from __future__ import annotations

from kvplan.replay.batch import Decode
from kvplan.replay.scheduler import Scheduler


class CountingScheduler(Scheduler):
    """Decides as `Scheduler` does; `jump` covers decode steps that change lengths and nothing else."""

    def quiet_steps(self, at_most: int) -> int:
        """Decode steps ahead in which nobody ends, comes, gives way or starts a prompt.

        `at_most` is how many pass before the next arrival.
        """
        running = self.running
        if (
            self.chunked is not None
            or not isinstance(self._last, Decode)
            or self._last.sequences is not running.sequences
        ):
            return 0
        if self.waiting.requests and not self._closed():
            return 0
        next_end = self._ends.next_tick()
        assert next_end is not None, "whoever decodes has an end"
        step = running.lockstep
        num_steps = step.steps_within(next_end - 1 - step.generated)
        if not self._closed():
            num_steps = min(num_steps, at_most)
        # whoever gives slots back does so as a step is launched, before its tokens
        num_tokens = self.store.quiet_tokens(running.sequences)
        num_steps = min(num_steps, step.steps_within(num_tokens) + 1 if num_tokens >= 0 else 0)
        return self._affordable(num_steps)

    def jump(self, num_steps: int) -> None:
        """Take so many quiet steps at once."""
        running, store = self.running, self.store
        demand = running.demand(num_steps)
        store.reclaim(demand.wanted_tokens)
        store.memory.decode(running.sequences, demand.num_pages)
        running.launch(num_steps)
        running.lockstep.take_in(num_steps)
        self.ratio.step(num_steps)

    def _closed(self) -> bool:
        """Whether no pass looks at the queue until somebody leaves."""
        return self.running.full and self._server.sliding is None

    def _affordable(self, num_steps: int) -> int:
        """As many of these steps as memory surely holds, the cache being given up."""
        num_pages = self.store.quiet_pages(len(self.running))
        if num_steps <= 0 or self.running.demand(num_steps).num_pages <= num_pages:
            return num_steps
        fits, fails = 0, num_steps
        while fails - fits > 1:
            middle = (fits + fails) // 2
            if self.running.demand(middle).num_pages <= num_pages:
                fits = middle
            else:
                fails = middle
        return fits
