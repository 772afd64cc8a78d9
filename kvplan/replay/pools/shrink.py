"""The shortest prefix of recorded operations after which an invariant is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple

from kvplan.errors import PoolError, ReplayViolation, TraceError
from kvplan.replay.checks import Broken, broken_by
from kvplan.replay.pools.assembly import Assembly
from kvplan.replay.pools.player import Player
from kvplan.replay.workloads.operations import Operation

STRIDE = 512  # operations between two audits while nobody knows where it breaks


class Played(NamedTuple):
    """How many operations were played, and the invariant that the last one was found to break.

    After the first `sound` of them everything was in order. `complete` is False where it was
    stopped before the end.
    """

    num_operations: int
    step: int
    sound: int
    broken: Broken | None
    complete: bool = True


def play(
    operations: Iterable[Operation],
    assembly: Assembly,
    *,
    audit_from: int = 0,
    every: int = STRIDE,
    after: Callable[[int], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Played:
    """Play operations on fresh memory until one breaks an invariant, or to their end.

    Audits come every so many operations, from the one with number `audit_from` on. `after` hears
    the number of each operation that is done, `stop` is asked after each.
    """
    player = Player(assembly.memory)
    number = sound = step = 0
    stopped = False
    for operation in operations:
        number += 1
        step = operation.step if operation.step is not None else step
        try:
            player.play(operation)
            due = number >= audit_from and number % every == 0
            if due and not player.between_releases:
                assembly.audit()
                sound = number
            if after is not None:
                after(number)
        except TraceError as error:
            raise TraceError(error.problem, where=f"operation {number}") from None
        except Broken as broken:
            return Played(number, step, sound, broken)
        except (ReplayViolation, PoolError) as error:
            check, problem = broken_by(error).check, f"operation {number}: {error.problem}"
            return Played(number, step, sound, Broken(check, problem))
        if stop is not None and not player.between_releases and stop():
            stopped = True
            break
    try:
        assembly.audit()
    except Broken as broken:
        return Played(number, step, sound, broken)
    return Played(number, step, number, None, complete=not stopped)


def shortest(
    operations: Callable[[], Iterable[Operation]],
    fresh: Callable[[], Assembly],
    stop: Callable[[], bool] | None = None,
) -> Played | None:
    """The shortest prefix that breaks an invariant.

    None where the operations alone break none, or where it was stopped before it was found.
    """
    played = play(operations(), fresh(), stop=stop)
    if played.broken is None or played.num_operations == played.sound + 1:
        return played if played.broken else None
    prefix = islice(operations(), played.num_operations)
    found = play(prefix, fresh(), audit_from=played.sound + 1, every=1, stop=stop)
    return found if found.complete else None
