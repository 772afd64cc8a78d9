"""What a replay verifies: six checks, each held, broken or not made."""

from __future__ import annotations

from typing import Literal

import msgspec

from kvplan.errors import KvplanError, OutOfSlots, ReplayViolation

State = Literal["held", "broken", "not checked"]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One invariant and what became of it, in words."""

    name: str
    state: State
    text: str


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A broken invariant: the step, and the request, slot or row where they are known."""

    check: str
    text: str
    step: int
    request: str | None = None
    slot: int | None = None

    def sentence(self) -> str:
        """One line that names all of it."""
        whose = f", request '{self.request}'" if self.request is not None else ""
        where = f", slot {self.slot}" if self.slot is not None else ""
        return f"step {self.step}{whose}{where}: {self.text}"


class Broken(ReplayViolation):
    """An invariant that does not hold, with the request and the slot where they are known."""

    def __init__(
        self, check: str, problem: str, *, request: str | None = None, slot: int | None = None
    ) -> None:
        super().__init__(problem)
        self.check = check
        self.request = request
        self.slot = slot

    def at(self, step: int) -> Violation:
        """The violation of one step."""
        return Violation(
            check=self.check, text=self.problem, step=step, request=self.request, slot=self.slot
        )


BYTES = "planned bytes = allocated bytes"
OWNERS = "no slot owned twice, none lost"
LISTS = "free lists, generations and mappings are sound"
STAMPS = "every token reads back as it was written"
RESERVE = "no request exceeds its decode reserve or its row"
SERVED = "every step finds free slots"  # said where it is broken, or operations were played
PEAKS = "predicted figures = measured figures"
ALL = (BYTES, OWNERS, LISTS, STAMPS, RESERVE, PEAKS)


def not_checked(name: str, reason: str) -> Check:
    """A check that this run could not make."""
    return Check(name=name, state="not checked", text=reason)


def broken_by(error: KvplanError) -> Broken:
    """The invariant that a refusal of the memory breaks."""
    if isinstance(error, Broken):
        return error
    check = SERVED if isinstance(error, OutOfSlots) else OWNERS
    return Broken(check, error.problem)


def long_row(rid: str, num_positions: int, row_width: int) -> Broken:
    """A request that needs more positions than its row has: the engine would write beyond it."""
    text = f"{num_positions:,} positions are asked for in a row of {row_width:,}"
    return Broken(RESERVE, text, request=rid)


def stopped_at(broken: Broken, made: tuple[Check, ...] = ()) -> tuple[Check, ...]:
    """All checks of a replay that stopped at a violation, those that were made before it first."""
    done = {check.name for check in made} | {broken.check}
    return (
        *made,
        Check(name=broken.check, state="broken", text=broken.problem),
        *(
            not_checked(name, "the replay stopped at the violation")
            for name in ALL
            if name not in done
        ),
    )
