"""What a replay verifies: six checks, each held, broken or not made."""

from __future__ import annotations

from typing import Literal

import msgspec

from kvplan.errors import ReplayViolation

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
PEAKS = "predicted figures = measured figures"
SERVED = "every operation finds its slots"  # of played operations; a scheduler asks for no more
ALL = (BYTES, OWNERS, LISTS, STAMPS, RESERVE, PEAKS)


def not_checked(name: str, reason: str) -> Check:
    """A check that this run could not make."""
    return Check(name=name, state="not checked", text=reason)
