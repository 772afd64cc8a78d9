"""What bounds a plan, which flag raises each bound, and by how much."""

from __future__ import annotations

from typing import Any

import msgspec

from kvplan.sizing.plan import Plan, plan_launch
from kvplan.sizing.resolved import Resolved

FRACTION_STEP = 0.01
HIGHEST_FRACTION = 0.99
HALVED_KV = {"bfloat16": "float8_e4m3fn", "float16": "float8_e4m3fn", "float32": "float8_e4m3fn"}


class Remedy(msgspec.Struct, frozen=True):
    """A changed flag and the value that it gives."""

    flag: str
    value: int


class Limit(msgspec.Struct, frozen=True):
    """One quantity: its value, what binds it, and what would raise it."""

    name: str
    value: int
    bound_by: str
    binds: bool
    remedies: tuple[Remedy, ...] = ()


def resized(plan: Plan, **changes: Any) -> Plan | None:
    """The same launch with other resolved arguments; None where it no longer starts."""
    resolved: Resolved = msgspec.structs.replace(plan.resolved, **changes)
    other = plan_launch(plan.model, plan.gpu, resolved, plan.memory, plan.draft)
    return other if isinstance(other, Plan) else None


def token_limits(plan: Plan) -> tuple[Limit, ...]:
    """Every bound on max_total_num_tokens: each stage's memory, then the user's cap."""
    bounds = []
    for planned in plan.stages:
        pool = planned.pool
        name = "tokens" if len(plan.stages) == 1 else f"tokens of stage {planned.stage.pp_rank}"
        budget = pool.budget.num_bytes / 2**30
        bound = f"budget {budget:.2f} GiB / {pool.cell.num_bytes:,.6g} B a token"
        bounds.append((name, pool.profiled_tokens, bound))
    cap = plan.resolved.max_total_tokens
    if cap is not None:
        bounds.append(("tokens", cap, "--max-total-tokens"))
    tightest = min(value for _, value, _ in bounds)
    remedies = token_remedies(plan)
    return tuple(
        Limit(name, value, bound, value == tightest, remedies if value == tightest else ())
        for name, value, bound in bounds
    )


def token_remedies(plan: Plan) -> tuple[Remedy, ...]:
    """Tokens under a higher fraction, a lifted cap, an fp8 cache."""
    resolved, found = plan.resolved, []
    if resolved.max_total_tokens is not None:
        found.append(("without --max-total-tokens", resized(plan, max_total_tokens=None)))
    fraction = round(resolved.mem_fraction_static + FRACTION_STEP, 6)
    if fraction <= HIGHEST_FRACTION:
        raised = resized(plan, mem_fraction_static=fraction)
        found.append((f"--mem-fraction-static {fraction:g}", raised))
    if resolved.kv_cache_dtype in HALVED_KV and plan.model.compressed is None:
        halved = resized(plan, kv_cache_dtype=HALVED_KV[resolved.kv_cache_dtype])
        found.append(("--kv-cache-dtype fp8_e4m3", halved))
    return tuple(
        Remedy(flag, other.tokens)
        for flag, other in found
        if other is not None and other.tokens > plan.tokens
    )


def request_limits(plan: Plan) -> tuple[Limit, ...]:
    """Every bound on max_running_requests of one DP rank, and which binds."""
    requests = min(
        (planned.pool.requests for planned in plan.stages), key=lambda each: each.max_running
    )
    binding = requests.binding
    return tuple(
        Limit(
            "running requests",
            bound.requests,
            bound.name,
            bound is binding,
            request_remedies(plan, bound.name) if bound is binding else (),
        )
        for bound in requests.bounds
    )


def request_remedies(plan: Plan, bound: str) -> tuple[Remedy, ...]:
    """Requests under twice the asked number, or twice the state slots."""
    resolved = plan.resolved
    if bound == "state slots":
        state = plan.stages[0].pool.budget.state
        assert state is not None
        slots = 2 * state.slots * resolved.widths.attn_dp
        changes: dict[str, Any] = {"max_mamba_cache_size": slots}
        flag = f"--max-mamba-cache-size {slots}"
    else:
        asked = 2 * plan.max_running_requests * resolved.widths.attn_dp
        changes, flag = {"max_running_requests": asked}, f"--max-running-requests {asked}"
    other = resized(plan, **changes)
    if other is None or other.max_running_requests <= plan.max_running_requests:
        return ()
    return (Remedy(flag, other.max_running_requests),)
