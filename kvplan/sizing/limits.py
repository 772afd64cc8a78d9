"""What bounds a plan, which flag raises each bound, and by how much."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from kvplan.sizing.overcommitted import missing_bytes
from kvplan.sizing.plan import Plan, StagePlan
from kvplan.sizing.replan import asked_fraction, replanned
from kvplan.units import GIB

FRACTION_STEP = 0.01
HIGHEST_FRACTION = 0.99
HALVED_KV = frozenset({"bfloat16", "float16", "float32"})


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


def token_limits(plan: Plan) -> tuple[Limit, ...]:
    """Every bound on max_total_num_tokens: each stage's memory, then the user's cap."""
    bounds = []
    for planned in plan.stages:
        name = "tokens" if len(plan.stages) == 1 else f"tokens of stage {planned.stage.pp_rank}"
        if planned.pool.cell.num_bytes or len(plan.stages) == 1:
            bounds.append((name, planned.pool.profiled_tokens, memory_bound(planned)))
    cap = plan.resolved.max_total_tokens
    if cap is not None:
        bounds.append(("tokens", cap, "--max-total-tokens"))
    tightest = min(value for _, value, _ in bounds)
    remedies = token_remedies(plan)
    return tuple(
        Limit(name, value, bound, value == tightest, remedies if value == tightest else ())
        for name, value, bound in bounds
    )


def memory_bound(planned: StagePlan) -> str:
    """How one stage's memory bounds its tokens."""
    pool, resolved = planned.pool, planned.stage.resolved
    budget = f"budget {pool.budget.num_bytes / GIB:.2f} GiB"
    cell = f"{pool.cell.num_bytes:,.6g} B a token"
    if not pool.cell.num_bytes:
        return "no layer keeps KV: the context length"
    if pool.sliding is not None and pool.sliding.mode == "request cap":
        return f"{budget} less {pool.sliding.sliding_tokens:,} sliding tokens, / full KV"
    if pool.compressed is not None:
        return f"{budget} less rings of the requests, / {cell}"
    if resolved.kv_shards > 1:
        return f"{budget} less gather scratch, / {cell}"
    return f"{budget} / {cell}"


def token_remedies(plan: Plan) -> tuple[Remedy, ...]:
    """Tokens under a higher fraction, a lifted cap, an fp8 cache."""
    return remedies_of(plan, more_memory(plan), lambda each: each.tokens)


def remedies_of(
    plan: Plan, changed: Iterable[tuple[str, Plan | None]], measure: Callable[[Plan], int]
) -> tuple[Remedy, ...]:
    """Of launches with one flag changed those that start with more of what is measured."""
    now = measure(plan)
    return tuple(
        Remedy(flag, measure(other))
        for flag, other in changed
        if other is not None and measure(other) > now and not missing_bytes(other)
    )


def more_memory(plan: Plan) -> list[tuple[str, Plan | None]]:
    """The launch with a lifted cap, a higher fraction, an fp8 cache."""
    resolved = plan.resolved
    found: list[tuple[str, Plan | None]] = []
    if resolved.max_total_tokens is not None:
        found.append(("without --max-total-tokens", replanned(plan, max_total_tokens=None)))
    fraction = round(asked_fraction(resolved) + FRACTION_STEP, 6)
    if fraction <= HIGHEST_FRACTION:
        found.append(changed_to(plan, "mem_fraction_static", fraction))
    if resolved.kv_cache_dtype in HALVED_KV and plan.model.compressed is None:
        found.append(changed_to(plan, "kv_cache_dtype", "fp8_e4m3"))
    return found


def changed_to(plan: Plan, field: str, value: float | str) -> tuple[str, Plan | None]:
    """A flag with another value, and the launch under it."""
    text = f"{value:g}" if isinstance(value, float) else value
    return f"--{field.replace('_', '-')} {text}", replanned(plan, **{field: value})


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
    ranks = plan.resolved.widths.attn_dp
    if bound == "state slots":
        state = plan.stages[0].pool.budget.state
        assert state is not None
        field, number = "max_mamba_cache_size", 2 * state.slots * ranks
    else:
        field, number = "max_running_requests", 2 * plan.max_running_requests * ranks
    changed = [changed_to(plan, field, number)]
    return remedies_of(plan, changed, lambda each: each.max_running_requests)
