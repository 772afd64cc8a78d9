"""One replay over assembled pools, audited on the way and at the end."""

from __future__ import annotations

from collections.abc import Iterable

from kvplan.replay.measured import Measured, measured
from kvplan.replay.pools.assembly import Assembly
from kvplan.replay.replay import Replay
from kvplan.replay.requests import Request
from kvplan.replay.run import Driver, Observer, limited
from kvplan.replay.server import Server
from kvplan.replay.trace import Session


def measure(
    session: Session,
    server: Server,
    requests: Iterable[Request],
    assembly: Assembly,
    *,
    total: int,
    observers: tuple[Observer, ...] = (),
) -> Measured:
    """Replay over pools, up to the first broken invariant."""
    options, agreement = session.options, assembly.agreement
    run = Replay(
        server,
        assembly.memory,
        limited(requests, options.limit),
        options.assumptions,
        jumps=False,
        dp_ranks=session.plan.resolved.widths.dp_ranks,
    )
    driver = Driver(
        run,
        observers=(*assembly.observers, *observers, *session.observers),
        stop=session.stop if agreement is None else lambda: agreement.stopped,
        total=total,
    )

    def audit() -> None:
        assembly.auditor.audit()
        if agreement is not None:
            agreement.finish()

    found = measured(driver, audit)
    if found.broken is not None:
        assembly.abandon()
    return found
