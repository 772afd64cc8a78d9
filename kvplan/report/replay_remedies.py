"""What would give a workload more room where it did not fit: flags, each with what it gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kvplan.replay.gauges import SLIDING, STATES
from kvplan.replay.result import ReplayResult
from kvplan.replay.settings import sliding_side, state_slots
from kvplan.sizing.limits import (
    Remedy,
    changed_to,
    more_memory,
    remedies_of,
    request_limits,
    token_remedies,
)
from kvplan.sizing.plan import Plan
from kvplan.sizing.replan import replanned
from kvplan.units import NS_PER_S

Remedies = Callable[[Plan], tuple[Remedy, ...]]
ShortLimits = dict[str, tuple[Remedy, ...]]

LONG_WAIT_NS = 10 * NS_PER_S  # where one request in a hundred waits so long, the verdict says it


def remedies_report(short: ShortLimits) -> list[dict[str, Any]]:
    """Remedies of each shortage, the limit's name among them; none where the workload fits."""
    return [
        {"name": name, **msgspec.structs.asdict(each)}
        for name, remedies in short.items()
        for each in remedies
    ]


def without_remedy(short: ShortLimits, result: ReplayResult) -> list[str]:
    """What was short and no flag raises, in words."""
    server = result.server
    limits = {
        "context": f"the model's own context of {server.context_len:,} tokens",
        "tokens": f"the KV pool of {server.num_tokens:,} tokens",
        "sliding tokens": f"the sliding pool of {result.fullest.capacity:,} tokens",
        "state slots": f"the {result.fullest.capacity:,} slots of recurrent state",
        "running requests": f"the limit of {server.max_running_requests:,} running requests",
    }
    return [
        f"no flag raises {limits[name]}, which this workload exceeds"
        for name, remedies in short.items()
        if not remedies
    ]


def short_limits(plan: Plan, result: ReplayResult) -> ShortLimits:
    """The limits that the workload ran into, each with the flags that raise it."""
    server = result.server
    # a prompt is too long for one limit alone, the lower one
    too_long, context_is_lower = bool(result.rejections), server.context_len <= server.num_tokens
    waits = result.wait_ns.p99 >= LONG_WAIT_NS
    rows_were_full = result.peak_running == server.max_running_requests
    found: dict[str, Remedies] = {}
    if result.num_retractions or result.num_aborted or (waits and not rows_were_full):
        name, remedies = OF_POOLS.get(result.fullest.name, ("tokens", token_remedies))
        found[name] = remedies
    if too_long and not context_is_lower:
        found["tokens"] = token_remedies
    if too_long and context_is_lower:
        found["context"] = context_remedies
    if waits and rows_were_full:
        found["running requests"] = running_remedies
    return {name: remedies(plan) for name, remedies in found.items()}


def running_remedies(plan: Plan) -> tuple[Remedy, ...]:
    """What raises the bound on running requests that binds."""
    return next(limit.remedies for limit in request_limits(plan) if limit.binds)


def context_remedies(plan: Plan) -> tuple[Remedy, ...]:
    """The model's own context, where the launch cuts it."""
    if plan.resolved.asked.context_length is None:
        return ()
    other = replanned(plan, context_length=None)
    if other is None or other.resolved.context_length <= plan.resolved.context_length:
        return ()
    return (Remedy("without --context-length", other.resolved.context_length),)


def sliding_remedies(plan: Plan) -> tuple[Remedy, ...]:
    """Sliding tokens under twice the ratio to the full side, or with more memory for both sides."""
    ratio = min(1.0, 2 * plan.resolved.swa_full_tokens_ratio)
    wider = changed_to(plan, "swa_full_tokens_ratio", ratio)
    return remedies_of(plan, [wider, *more_memory(plan)], sliding_tokens)


def sliding_tokens(plan: Plan) -> int:
    side = sliding_side(plan)
    return 0 if side is None else side.num_tokens


def state_remedies(plan: Plan) -> tuple[Remedy, ...]:
    """State slots where twice as many are asked for, or with more memory."""
    number = 2 * num_states(plan) * plan.resolved.widths.attn_dp
    more = changed_to(plan, "max_mamba_cache_size", number)
    return remedies_of(plan, [more, *more_memory(plan)], num_states)


def num_states(plan: Plan) -> int:
    states = state_slots(plan)
    return 0 if states is None else states.num_slots


# the limit that a pool beside the plain one is, and what raises it
OF_POOLS: dict[str, tuple[str, Remedies]] = {
    SLIDING: ("sliding tokens", sliding_remedies),
    STATES: ("state slots", state_remedies),
}
