"""The flags that would let a broken requirement hold, each proven by planning with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kvplan import planner
from kvplan.errors import KvplanError
from kvplan.guard.figures import figures, shown
from kvplan.planner import Launch
from kvplan.sizing.diagnosis import FRACTION_MILLIS, cures, last_resort, smallest
from kvplan.sizing.plan import NoStart, Plan

MOST_REQUESTS = 1 << 16
DECIMAL_GB = 10**9
Holds = Callable[[Plan], bool]


class Knob(msgspec.Struct, frozen=True):
    """A server argument that may move from `current` to `limit`; `value` makes the argument of a step."""

    field: str
    current: int
    limit: int
    value: Callable[[int], Any] = int


def start_remedy(refused: NoStart | Plan) -> str:
    """The first single flag that starts the launch, or what to do where none does."""
    found = cures(refused)
    return found[0].sentence() if found else last_resort(refused)


def remedies(launch: Launch, plan: Plan, requirement: str, holds: Holds) -> str:
    """Flags of which each alone lets the requirement hold, by its smallest move; empty where none does."""
    found = []
    for name in MOVES[requirement]:
        knob = KNOBS[name](plan)
        step = nearest_step(launch, knob, holds)
        if step is not None:
            found.append(sentence(launch, knob, step))
    if requirement in HALVED_BY_FP8:
        halved = planned(launch, kv_cache_dtype="fp8_e4m3")
        if halved is not None and holds(halved):
            found.append("--kv-cache-dtype fp8_e4m3")
    return ", or ".join(found)


def nearest_step(launch: Launch, knob: Knob, holds: Holds) -> int | None:
    """The step nearest to the current one at which the requirement holds.

    Far enough away a launch may no longer start, which ends the search there.
    """
    sign = 1 if knob.limit > knob.current else -1

    def plan_at(distance: int) -> Plan | None:
        return planned(launch, **{knob.field: knob.value(knob.current + sign * distance)})

    def settled(distance: int) -> bool:
        plan = plan_at(distance)
        return plan is None or holds(plan)

    distance = smallest(1, abs(knob.limit - knob.current), settled)
    if distance is None or plan_at(distance) is None:
        return None
    return knob.current + sign * distance


def planned(launch: Launch, **arguments: Any) -> Plan | None:
    """The launch with other arguments, None where it is refused."""
    args = msgspec.structs.replace(launch.args, **arguments)
    try:
        outcome = planner.plan(msgspec.structs.replace(launch, args=args)).outcome
    except KvplanError:
        return None
    return outcome if isinstance(outcome, Plan) else None


def sentence(launch: Launch, knob: Knob, step: int) -> str:
    """The flag with its value; a memory fraction says what it leaves free."""
    value = knob.value(step)
    flag = f"--{knob.field.replace('_', '-')} {value:g}"
    if knob.field != "mem_fraction_static":
        return flag
    plan = planned(launch, mem_fraction_static=value)
    assert plan is not None
    return f"{flag} ({shown('headroom_bytes', figures(plan)['headroom_bytes'])} stay free)"


def thousandths(step: int) -> float:
    return step / 1000


def fraction(limit: int) -> Callable[[Plan], Knob]:
    """The memory fraction, in thousandths, towards a limit."""

    def knob(plan: Plan) -> Knob:
        current = round(plan.resolved.mem_fraction_static * 1000)
        return Knob("mem_fraction_static", current, limit, thousandths)

    return knob


def running(limit: int) -> Callable[[Plan], Knob]:
    """Running requests over all DP ranks, towards a limit."""

    def knob(plan: Plan) -> Knob:
        current = plan.max_running_requests * plan.resolved.widths.attn_dp
        return Knob("max_running_requests", current, limit)

    return knob


def shorter(plan: Plan) -> Knob:
    return Knob("context_length", plan.resolved.context_length, 1)


def longer(plan: Plan) -> Knob:
    """Towards the model's own context, beyond which the engine refuses a launch."""
    return Knob("context_length", plan.resolved.context_length, plan.model.context_length)


def smaller_host(plan: Plan) -> Knob:
    """The host tier by its size in decimal GB a rank."""
    host_bytes = sum(pool.num_bytes for pool in plan.stages[0].host)
    return Knob("hicache_size", 1 + host_bytes // DECIMAL_GB, 1)


KNOBS: dict[str, Callable[[Plan], Knob]] = {
    "more memory": fraction(FRACTION_MILLIS),
    "less memory": fraction(1),
    "more requests": running(MOST_REQUESTS),
    "fewer requests": running(1),
    "shorter": shorter,
    "longer": longer,
    "smaller host": smaller_host,
}
MOVES: dict[str, tuple[str, ...]] = {
    "min_tokens": ("more memory",),
    "fits_full_context": ("more memory", "more requests", "shorter"),
    "min_requests": ("more memory", "more requests", "longer"),
    "max_kv_gib": ("less memory",),
    "min_headroom_gib": ("less memory",),
    "max_row_width": ("shorter",),
    "max_req_to_token_mib": ("fewer requests", "shorter"),
    "max_host_gib": ("smaller host",),
}
HALVED_BY_FP8 = frozenset({"min_tokens", "fits_full_context", "min_requests"})
