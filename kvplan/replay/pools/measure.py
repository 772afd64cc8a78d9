"""One replay over assembled pools, up to its end, a stop, or the first broken invariant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kvplan.errors import PoolError, ReplayViolation
from kvplan.replay import checks
from kvplan.replay.checks import Broken, Violation
from kvplan.replay.pools.assembly import Assembly
from kvplan.replay.replay import Replay
from kvplan.replay.requests import Request
from kvplan.replay.result import ReplayResult
from kvplan.replay.run import Driver, Observer, served
from kvplan.replay.server import Server
from kvplan.replay.trace import Session


class Measured(NamedTuple):
    """A replay over pools: its figures, and the invariant that it broke, if any."""

    result: ReplayResult
    broken: Broken | None

    @property
    def violation(self) -> Violation | None:
        """The broken invariant at the step in which it was found."""
        return None if self.broken is None else self.broken.at(self.result.num_steps)


def measure(
    session: Session,
    server: Server,
    requests: Iterable[Request],
    assembly: Assembly,
    *,
    total: int,
    observers: tuple[Observer, ...] = (),
) -> Measured:
    """Replay over pools, audited on the way and at the end."""
    options, agreement = session.options, assembly.agreement
    run = Replay(
        server,
        assembly.memory,
        served(session.plan, requests, options.limit),
        options.assumptions,
        jumps=False,
    )
    stop = session.stop if agreement is None else lambda: agreement.stopped
    driver = Driver(
        run,
        observers=(*assembly.observers, *observers, *session.observers),
        stop=stop,
        total=total,
    )
    broken = None
    try:
        driver.go()
        assembly.auditor.audit()
        if agreement is not None:
            agreement.finish()
    except Broken as error:
        broken = error
    except (ReplayViolation, PoolError) as error:
        broken = Broken(checks.OWNERS, error.problem)
    if broken is not None:
        assembly.abandon()
    return Measured(driver.result(), broken)
