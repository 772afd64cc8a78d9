"""What a plan's tokens are worth: requests that fit at a context length."""

from __future__ import annotations

import msgspec

from kvplan.sizing.plan import Plan
from kvplan.units import ceil_page


class Capacity(msgspec.Struct, frozen=True):
    """Requests of one context length that fit at once, and what stops the next one."""

    context_tokens: int
    requests: int
    bound_by: str


def request_tokens(plan: Plan, context_tokens: int) -> int:
    """Slots that one request of a context takes in the full pool, its draft reserve included."""
    reserve = plan.reserves.alloc_reserve_per_decode if plan.resolved.speculation.algorithm else 0
    return ceil_page(context_tokens + reserve, plan.resolved.page_size)


def window_tokens(plan: Plan, context_tokens: int) -> int:
    """Slots that one running request takes in the sliding pool."""
    sliding = plan.model.sliding or plan.model.compressed
    assert sliding is not None
    page = plan.resolved.page_size
    return ceil_page(min(context_tokens, sliding.window + page), page) + page


def capacity_at(plan: Plan, context_tokens: int) -> Capacity:
    """Requests that can each hold `context_tokens` tokens at once, on one DP rank."""
    bounds = [("running requests", plan.max_running_requests)]
    widths = plan.resolved.widths
    pool = min((stage.pool for stage in plan.stages), key=lambda each: each.tokens)
    all_sliding = pool.sliding is not None and not pool.sliding.full_tokens
    if not all_sliding:
        tokens = pool.tokens * widths.attn_dcp
        bounds.append(("tokens", tokens // request_tokens(plan, context_tokens)))
    side = pool.sliding or pool.compressed
    if side is not None:
        slots = side.sliding_tokens
        bounds.append(("sliding tokens", slots // window_tokens(plan, context_tokens)))
    name, requests = min(bounds, key=lambda bound: bound[1])
    return Capacity(context_tokens, requests, name)
