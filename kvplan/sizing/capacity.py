"""What a plan's tokens are worth: requests that fit at a context length."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kvplan.sizing.plan import Plan, StagePlan
from kvplan.sizing.pool import StagePool
from kvplan.units import ceil_page

Bound = tuple[str, int]


class Capacity(msgspec.Struct, frozen=True):
    """Requests of one context length that fit at once, and what stops the next one."""

    context_tokens: int
    requests: int
    bound_by: str


def request_tokens(plan: Plan, context_tokens: int) -> int:
    """Slots that one request of a context takes in the full pool, its draft reserve included.

    In tokens of all ranks that share the pool: they hand out a page of every rank together.
    """
    reserve = plan.reserves.alloc_reserve_per_decode if plan.resolved.speculation.algorithm else 0
    return ceil_page(context_tokens + reserve, plan.reserves.alloc_page_size)


def window_tokens(plan: Plan, context_tokens: int) -> int:
    """Slots that one running request takes in the sliding pool at its worst."""
    from kvplan.sizing.sliding import most_sliding

    sliding = plan.model.sliding or plan.model.compressed
    assert sliding is not None
    page = plan.resolved.page_size
    return ceil_page(
        min(request_tokens(plan, context_tokens), most_sliding(plan.resolved, sliding.window)), page
    )


def capacity_at(plan: Plan, context_tokens: int) -> Capacity:
    """Requests that can each hold `context_tokens` tokens at once, on one DP rank."""
    bounds = [("running requests", plan.max_running_requests)]
    if context_tokens > plan.resolved.context_length:
        bounds.append(("context length", 0))
    for planned in plan.stages:
        bounds.extend(stage_bounds(plan, planned, context_tokens))
    name, requests = min(bounds, key=lambda bound: bound[1])
    return Capacity(context_tokens, requests, name)


def stage_bounds(plan: Plan, planned: StagePlan, context_tokens: int) -> Iterator[Bound]:
    """Requests by each pool of one stage."""
    pool, each = planned.pool, request_tokens(plan, context_tokens)
    if pool.unified is not None:
        yield "bytes of the unified pool", unified_requests(plan, pool, context_tokens, each)
        return
    if plan.resolved.hisparse is not None:
        yield from swap_bounds(planned, context_tokens, each)
    elif pool.sliding is None or pool.sliding.full_tokens:
        ranks = plan.resolved.widths.attn_dcp * plan.resolved.kv_shards
        yield "tokens", pool.tokens * ranks // each
    side = pool.sliding or pool.compressed
    if side is not None and plan.resolved.request_ring is None:
        yield "sliding tokens", side.sliding_tokens // window_tokens(plan, context_tokens)


def swap_bounds(planned: StagePlan, context_tokens: int, each: int) -> Iterator[Bound]:
    """HiSparse: all tokens on the host, a buffer of each request on the device."""
    from kvplan.sizing.hisparse import device_tokens

    pool = planned.pool
    if pool.compressed is None:
        logical = pool.tokens * planned.stage.resolved.logical_ratio
        on_device = pool.tokens
    else:
        logical, on_device = pool.tokens, pool.compressed.c4_tokens
    yield "host tokens", logical // each
    yield "device tokens", on_device // device_tokens(planned.stage, context_tokens)


def unified_requests(plan: Plan, pool: StagePool, context_tokens: int, each: int) -> int:
    """Requests that share one buffer: tokens, and a window or states beside them."""
    buffer = pool.unified
    assert buffer is not None
    beside = pool.budget.state.slots_per_request if pool.budget.state is not None else 0
    if buffer.slides:
        beside = window_tokens(plan, context_tokens)
    a_request = each // plan.resolved.widths.attn_dcp * buffer.full_entry
    a_request += beside * buffer.other_entry
    return (buffer.total_bytes - buffer.reserved_bytes) // a_request
