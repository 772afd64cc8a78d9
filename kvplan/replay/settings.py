"""The scheduler's capacities and settings that follow from a plan."""

from __future__ import annotations

from typing import Literal, cast

import msgspec

from kvplan.errors import InputError, did_you_mean
from kvplan.replay.eviction import policy_named
from kvplan.replay.server import Server, SlidingPool
from kvplan.sizing.plan import Plan


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """Server arguments that steer the scheduler and have no say in sizing."""

    schedule_policy: Literal["fcfs", "lpm"] = "fcfs"
    conservativeness: float = 1.0
    eviction_policy: str = "lru"


POLICIES = ("fcfs", "lpm")
MAX_CONSERVATIVENESS = 1000.0


def read_choices(policy: str, conservativeness: float, eviction: str) -> Choices:
    """Choices as a user writes them; InputError for one that the engine does not have."""
    if policy not in POLICIES:
        raise InputError(f"unknown schedule policy '{policy}'", hint=did_you_mean(policy, POLICIES))
    if not 0 <= conservativeness <= MAX_CONSERVATIVENESS:
        raise InputError(
            f"a schedule conservativeness of {conservativeness:g}", hint="1.0 is the engine's own"
        )
    policy_named(eviction)
    return Choices(
        schedule_policy=cast(Literal["fcfs", "lpm"], policy),
        conservativeness=conservativeness,
        eviction_policy=eviction,
    )


def server_of(plan: Plan, choices: Choices | None = None) -> Server:
    """One DP rank of a planned launch, as its scheduler sees it; sizes in tokens.

    Under decode context parallelism a page of the allocator spans all its ranks. InputError for
    pools that no scheduling rule covers.
    """
    choices = choices or Choices()
    resolved, ranks = plan.resolved, plan.resolved.widths.attn_dcp
    chunk = resolved.chunked_prefill_size
    return Server(
        page_size=plan.reserves.alloc_page_size,
        num_tokens=plan.tokens * ranks,
        num_rows=plan.rows - 1,
        max_running_requests=plan.max_running_requests,
        context_len=resolved.context_length,
        chunked_prefill_size=chunk if chunk > 0 else None,
        max_prefill_tokens=resolved.max_prefill_tokens,
        prefix_cache=resolved.radix_cache,
        eviction_policy=choices.eviction_policy,
        schedule_policy=choices.schedule_policy,
        conservativeness=choices.conservativeness,
        overlap=resolved.overlap_schedule,
        sliding=sliding_side(plan),
    )


def sliding_side(plan: Plan) -> SlidingPool | None:
    """The second pool of a launch that has one; the least of all stages that hold some of it."""
    reach = plan.model.sliding or plan.model.compressed
    sides = [stage.pool.sliding or stage.pool.compressed for stage in plan.stages]
    present = [side for side in sides if side is not None and side.sliding_tokens]
    if reach is None or not present:
        return None
    if any(not side.full_tokens for side in present):
        raise InputError(
            f"every layer of '{plan.model.name}' slides: such pools are not replayed",
            hint="'kvplan size' says what they hold",
        )
    return SlidingPool(window=reach.window, num_tokens=min(s.sliding_tokens for s in present))
