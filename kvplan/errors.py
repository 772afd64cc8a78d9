"""Refusals that the user can act on; any other exception that escapes is a bug."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class KvplanError(Exception):
    """Base of every refusal: the problem, where it is, and the next step."""

    exit_code = 2

    def __init__(self, problem: str, *, where: str | None = None, hint: str | None = None) -> None:
        self.problem = problem
        self.where = where
        self.hint = hint
        super().__init__(f"{where}: {problem}" if where else problem)


class InputError(KvplanError):
    """A YAML file, config.json, argument or override that cannot be read as meant."""


class CombinationError(KvplanError):
    """Settings that the engine does not serve together."""


class UnknownArchitecture(KvplanError):
    """A model class that kvplan has no rules for: refused, never guessed."""


class MissingExtra(KvplanError):
    """A command needs torch or triton and they are not installed."""


class TraceError(KvplanError):
    """A workload file that cannot be replayed as it stands."""


class ReplayViolation(KvplanError):
    """A replay broke an invariant: the answer is no, and the message says where."""

    exit_code = 1


class OutOfSlots(ReplayViolation):
    """More tokens, rows or states are asked for than are free: the engine would stop here."""


class PoolError(KvplanError):
    """Misuse of a pool or allocator: double free, padding slot, lengths that go back."""


class WorkerError(KvplanError):
    """A worker process died, or the cluster that was asked for cannot be reached or used."""


class DeviceError(KvplanError):
    """The asked device is absent or out of memory."""


MOST_BEGUN = 8  # names that one beginning may list


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to a mistyped one, or None when nothing is close."""
    lowered = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    return lowered[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: those that it begins, the nearest one, or the whole list."""
    known = sorted(known)
    begun = [each for each in known if name and each.lower().startswith(name.lower())]
    if 1 < len(begun) <= MOST_BEGUN:
        return f"did you mean one of: {', '.join(begun)}?"
    close = nearest(name, begun or known) or next(iter(begun), None)
    return f"did you mean '{close}'?" if close else f"one of: {', '.join(known)}"
