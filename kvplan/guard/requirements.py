"""Whether a plan holds each requirement of its budget."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kvplan.errors import InputError
from kvplan.guard.budget import Entry, RequestsAt
from kvplan.guard.figures import Figures, figures
from kvplan.guard.remedies import remedies, start_remedy
from kvplan.planner import Launch
from kvplan.sizing.capacity import Capacity, capacity_at
from kvplan.sizing.overcommitted import missing_bytes
from kvplan.sizing.plan import NoStart, Plan
from kvplan.sizing.verdict import refusal, verdict
from kvplan.units import GIB, MIB


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One requirement: whether it holds, in words, and what to change where it does not."""

    requirement: str
    held: bool
    text: str
    where: str
    """`file:line:column` of the requirement"""
    hint: str | None = None
    have: float | None = None
    need: float | None = None


class Bound(msgspec.Struct, frozen=True):
    """A requirement that bounds one figure; `scale` is what one unit counts."""

    figure: str
    title: str
    at_least: bool
    unit: str = ""
    scale: int = 1

    def of(self, found: Figures) -> float:
        """The figure in the bound's unit."""
        value = found.get(self.figure, 0)
        return value if self.scale == 1 else value / self.scale


BOUNDS: dict[str, Bound] = {
    "min_tokens": Bound("tokens", "tokens of KV", True),
    "max_kv_gib": Bound("kv_bytes", "KV pools", False, " GiB", GIB),
    "min_headroom_gib": Bound("headroom_bytes", "headroom", True, " GiB", GIB),
    "max_row_width": Bound("row_width", "row width", False),
    "max_req_to_token_mib": Bound("req_to_token_bytes", "req_to_token", False, " MiB", MIB),
    "max_host_gib": Bound("host_bytes", "host tier", False, " GiB", GIB),
}


WHOLE_CONTEXT = frozenset({"fits_full_context"})  # bounds whatever context the plan has


class Test(msgspec.Struct, frozen=True):
    """A measure of a plan and the bound that it must keep."""

    measure: Callable[[Plan], float]
    need: float
    at_least: bool = True

    def holds(self, plan: Plan) -> bool:
        have = self.measure(plan)
        return have >= self.need if self.at_least else have <= self.need


class Sized(msgspec.Struct, frozen=True):
    """A budget's launch and its plan."""

    entry: Entry
    launch: Launch
    plan: Plan


def findings(entry: Entry, launch: Launch, outcome: Plan | NoStart) -> list[Finding]:
    """Every requirement of a budget in the order of the documentation, the start first."""
    start = start_finding(entry, outcome)
    if isinstance(outcome, NoStart):
        return [start]
    sized = Sized(entry, launch, outcome)
    have = figures(outcome)
    bounded = [
        bound_finding(sized, have, name)
        for name in BOUNDS
        if getattr(entry.budget.require, name) is not None
    ]
    return [start, *context_findings(sized), *bounded]


def start_finding(entry: Entry, outcome: Plan | NoStart) -> Finding:
    """Whether the launch starts, or is refused as it should be."""
    wanted = entry.budget.require.starts
    where = entry.where("require", "starts")
    if isinstance(outcome, NoStart):
        starts, text = False, refusal(outcome)
    else:
        missing = missing_bytes(outcome)
        at_context = capacity_at(outcome, outcome.resolved.context_length)
        starts, text = not missing, verdict(outcome, at_context, missing)
    hint = start_remedy(outcome) if wanted and not starts else None
    held = starts is wanted
    return Finding(requirement="starts", held=held, text=text, where=where, hint=hint)


def context_findings(sized: Sized) -> list[Finding]:
    """Requests that must fit at once, at the full context and at others."""
    require = sized.entry.budget.require
    wanted: list[tuple[str, RequestsAt, tuple[str | int, ...]]] = []
    if require.fits_full_context:
        one = RequestsAt(context=sized.plan.resolved.context_length, requests=1)
        wanted.append(("fits_full_context", one, ()))
    asked = require.min_requests or ()
    if isinstance(asked, RequestsAt):
        wanted.append(("min_requests", asked, ()))
    else:
        wanted += [("min_requests", each, (index,)) for index, each in enumerate(asked)]
    return [requests_finding(sized, name, each, path) for name, each, path in wanted]


def requests_finding(
    sized: Sized, name: str, asked: RequestsAt, path: tuple[str | int, ...]
) -> Finding:
    """Requests of one context length against what is asked for."""

    def requests(plan: Plan) -> float:
        context = plan.resolved.context_length if name in WHOLE_CONTEXT else asked.context
        return served_at(plan, context).requests

    capacity = served_at(sized.plan, asked.context)
    text = (
        f"requests at {asked.context:,} tokens: {capacity.requests:,},"
        f" at least {asked.requests:,} required (bound by {capacity.bound_by})"
    )
    return judged(sized, name, text, Test(requests, asked.requests), path)


def served_at(plan: Plan, context: int) -> Capacity:
    """Requests of a length that fit at once: none that are longer than the engine takes."""
    if context > plan.resolved.context_length:
        return Capacity(context, 0, "the context length")
    return capacity_at(plan, context)


def bound_finding(sized: Sized, have: Figures, name: str) -> Finding:
    """A figure against its bound. InputError where the figure of this launch is not known."""
    bound, need = BOUNDS[name], getattr(sized.entry.budget.require, name)
    if bound.figure == "host_bytes" and "host_tokens" in have and "host_bytes" not in have:
        where = sized.entry.where("require", name)
        raise InputError("the bytes of this model's host tier are not modelled", where=where)

    def measure(plan: Plan) -> float:
        return bound.of(figures(plan))

    words = ("at least", "required") if bound.at_least else ("at most", "allowed")
    value = bound.of(have)
    text = (
        f"{bound.title}: {number(value)}{bound.unit},"
        f" {words[0]} {number(need)}{bound.unit} {words[1]}"
    )
    return judged(sized, name, text, Test(measure, need, bound.at_least))


def judged(
    sized: Sized, name: str, text: str, test: Test, path: tuple[str | int, ...] = ()
) -> Finding:
    """The finding of one test on the plan, with what to change where it fails."""
    held = test.holds(sized.plan)
    return Finding(
        requirement=name,
        held=held,
        text=text,
        where=sized.entry.where("require", name, *path),
        hint=None if held else remedies(sized.launch, sized.plan, name, test.holds) or None,
        have=test.measure(sized.plan),
        need=test.need,
    )


def number(value: float) -> str:
    """A count in full, a measure to three digits."""
    return f"{value:,.3f}".rstrip("0").rstrip(".")
