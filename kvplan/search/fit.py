"""The inverse of sizing: the value of a server argument at which a launch reaches a target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from kvplan.errors import KvplanError
from kvplan.planner import Launch, plan
from kvplan.search.boundary import edge_holding, first_holding, last_holding
from kvplan.search.knobs import Goal, Knob
from kvplan.search.target import Miss, Target
from kvplan.sizing.plan import NoStart, Plan
from kvplan.units import GIB

CHEAP_POINTS = 1024  # sizings that a search may spend on looking around
COSTLY_POINTS = 33  # replays likewise, until the first that fails
FEW = 32  # values that are all replayed
BALANCED_REPLAYS = 8  # values of a ratio that are replayed, best balance first
# how near a value is that gives no plan
REFUSED, NO_START, FAR_BYTES = -2.0, -1.0, float(1 << 50)


class Trial(msgspec.Struct, frozen=True):
    """One value, the plan that it gives, and what that misses; no plan where it is refused."""

    value: Any
    plan: Plan | None
    miss: Miss | None

    @property
    def holds(self) -> bool:
        return self.plan is not None and self.miss is None


class Fit(msgspec.Struct, frozen=True):
    """The answer for one knob: the value that was looked for, the values beside it, or why there is none."""

    knob: Knob
    goal: Goal
    target: Target
    found: Trial | None
    neighbours: tuple[Trial, ...]
    """the found value and those next to it, or the nearest to the target, in order"""
    reason: str | None
    """why no value holds"""
    num_trials: int


class Skipped(msgspec.Struct, frozen=True):
    """A knob that has no say in the launch, and why."""

    knob: Knob
    reason: str


class Trials:
    """The values of a knob, each tried once at most."""

    def __init__(self, knob: Knob, launch: Launch, target: Target, values: Sequence[Any]) -> None:
        self.knob, self.launch, self.target, self.values = knob, launch, target, values
        self.known: dict[int, Trial] = {}

    def at(self, index: int) -> Trial:
        """The trial of one value."""
        if index not in self.known:
            self.known[index] = tried(self.knob, self.launch, self.target, self.values[index])
        return self.known[index]

    def holds(self, index: int) -> bool:
        return self.at(index).holds


def fit(launch: Launch, target: Target, knob: Knob, goal: Goal | None = None) -> Fit | Skipped:
    """Turn one knob until the launch reaches the target, and prove the answer by sizing it."""
    reason = knob.unfit(launch, target)
    if reason is not None:
        return Skipped(knob, reason)
    goal, sought = goal or knob.goal, target
    target = aimed(target, knob)
    if goal != "best":
        sought = target
    outcome = plan(launch).outcome
    trials = Trials(knob, launch, target, knob.values(launch, outcome))
    index = SEARCHES[goal](trials, knob.marks(outcome, target))
    if index is None:
        index = nearest(trials)
        why = why_none(trials, index)
        return Fit(knob, goal, sought, None, beside(trials, index), why, len(trials.known))
    proof = tried(knob, launch, target, trials.values[index])
    assert proof.holds
    return Fit(knob, goal, sought, proof, beside(trials, index), None, len(trials.known))


def aimed(target: Target, knob: Knob) -> Target:
    """A length alone asks for one request of it, or for room for every running one."""
    if target.context is None or target.requests is not None or target.costly:
        return target
    if knob.per_running:
        return msgspec.structs.replace(target, every_running=True)
    return msgspec.structs.replace(target, requests=1)


def tried(knob: Knob, launch: Launch, target: Target, value: Any) -> Trial:
    """Size the launch with one value; what the engine refuses or makes another of is missed."""
    args = msgspec.structs.replace(launch.args, **knob.change(value))
    outcome = outcome_of(msgspec.structs.replace(launch, args=args))
    if not isinstance(outcome, Plan):
        return Trial(value, None, outcome)
    other = knob.unsettled(outcome, value)
    return Trial(value, outcome, Miss(other, 0.0) if other else target.miss(outcome))


def outcome_of(launch: Launch) -> Plan | Miss:
    """The plan, or why there is none in words."""
    try:
        planned = plan(launch)
    except KvplanError as error:
        return Miss(f"refused: {error.problem}", REFUSED)
    outcome, missing = planned.outcome, planned.missing_bytes
    if isinstance(outcome, NoStart):
        return Miss(outcome.shortage.problem, NO_START + outcome.shortage.have_bytes / FAR_BYTES)
    if missing:
        text = f"pools and tables take {missing / GIB:.2f} GiB more than the card has"
        return Miss(text, NO_START - missing / FAR_BYTES)
    return outcome


def smallest_value(trials: Trials, marks: Sequence[int]) -> int | None:
    count = len(trials.values)
    if trials.target.costly and count > FEW:
        high = trials.knob.roomy_high
        return edge_holding(count, trials.holds, roomy_high=high, tight=high, points=COSTLY_POINTS)
    return first_holding(count, trials.holds, points=CHEAP_POINTS, marks=marks)


def largest_value(trials: Trials, marks: Sequence[int]) -> int | None:
    count = len(trials.values)
    if trials.target.costly and count > FEW:
        high = trials.knob.roomy_high
        return edge_holding(
            count, trials.holds, roomy_high=high, tight=not high, points=COSTLY_POINTS
        )
    return last_holding(count, trials.holds, points=CHEAP_POINTS, marks=marks)


def first_value(trials: Trials, marks: Sequence[int]) -> int | None:
    del marks
    return next((index for index in range(len(trials.values)) if trials.holds(index)), None)


def balanced_value(trials: Trials, marks: Sequence[int]) -> int | None:
    """Of the values that hold, the one whose pools have room for most requests: they fill together."""
    del marks
    sizing = msgspec.structs.replace(trials.target, workload=None)
    sized = Trials(trials.knob, trials.launch, sizing, trials.values)
    holding = [index for index in range(len(sized.values)) if sized.holds(index)]
    holding.sort(key=lambda index: -balance(sized.at(index), sizing))
    if trials.target.costly and holding:
        return next((index for index in holding[:BALANCED_REPLAYS] if trials.holds(index)), None)
    trials.known |= sized.known
    return holding[0] if holding else None


def balance(trial: Trial, target: Target) -> float:
    """Requests that the scarcest pool has room for."""
    assert trial.plan is not None
    return min(target.fills(trial.plan).values())


SEARCHES: dict[Goal, Callable[[Trials, Sequence[int]], int | None]] = {
    "smallest": smallest_value,
    "largest": largest_value,
    "first": first_value,
    "best": balanced_value,
}


def beside(trials: Trials, index: int) -> tuple[Trial, ...]:
    """A value with those before and after it."""
    low, high = max(0, index - 1), min(len(trials.values), index + 2)
    return tuple(trials.at(each) for each in range(low, high))


def nearest(trials: Trials) -> int:
    """Of the values that were tried, the one that reaches most of the target."""
    return max(trials.known, key=lambda index: (reached(trials.at(index)), -index))


def reached(trial: Trial) -> float:
    return trial.miss.reached if trial.miss is not None else 1.0


def why_none(trials: Trials, index: int) -> str:
    """The best that the knob can do, or why no value starts at all."""
    trial = trials.at(index)
    assert trial.miss is not None
    if trial.plan is None:
        return f"no value starts; at {trials.knob.shown(trial.value)}: {trial.miss.text}"
    return f"at best {trials.knob.shown(trial.value)}: {trial.miss.text}"


def trial_now(launch: Launch, target: Target) -> Trial:
    """The launch as it stands."""
    outcome = outcome_of(launch)
    if not isinstance(outcome, Plan):
        return Trial(None, None, outcome)
    return Trial(None, outcome, target.miss(outcome))
