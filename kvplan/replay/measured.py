"""One replay up to its end, a stop, or the first broken invariant."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kvplan.errors import PoolError, ReplayViolation
from kvplan.replay.checks import Broken, Violation, broken_by
from kvplan.replay.result import ReplayResult
from kvplan.replay.run import Driver


class Measured(NamedTuple):
    """A replay: its figures, and the invariant that it broke, if any."""

    result: ReplayResult
    broken: Broken | None

    @property
    def violation(self) -> Violation | None:
        """The broken invariant at the step in which it was found."""
        return None if self.broken is None else self.broken.at(self.result.num_steps)

    @property
    def was_stopped(self) -> bool:
        """Whether it ended early though nothing was wrong."""
        return not self.result.complete and self.broken is None


def measured(driver: Driver, then: Callable[[], None] | None = None) -> Measured:
    """Run a replay, and what is to be looked at after it."""
    broken = None
    try:
        driver.go()
        if then is not None:
            then()
    except (ReplayViolation, PoolError) as error:
        broken = broken_by(error)
    return Measured(driver.result(), broken)
