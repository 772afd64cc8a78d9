"""The formula behind every size of a plan, with its operands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvplan.planner import Planned
from kvplan.report.host import backup_report, least
from kvplan.sizing.budget import Budget
from kvplan.sizing.capacities import CompressedPools, HostPool, TwoPools
from kvplan.sizing.plan import Plan, StagePlan
from kvplan.sizing.reserves import draft_tokens
from kvplan.sizing.resolved import Resolved

Row = tuple[str, Any, str]  # name, value, formula


def memory_origins(planned: Planned) -> list[list[Any]]:
    """Free memory, which a launch that does not start has too."""
    estimate = planned.estimate
    return [
        ["pre_load_gib", round(estimate.memory.pre_load_gib, 6), estimate.pre_load_from],
        ["post_load_gib", round(estimate.memory.post_load_gib, 6), estimate.post_load_from],
    ]


def size_origins(plan: Plan, stage: StagePlan) -> list[list[Any]]:
    """Sizes of the narrowest stage in the order in which the engine finds them."""
    rows: list[Row] = [
        *reserve_rows(plan),
        *state_rows(stage),
        ("budget_bytes", stage.pool.budget.num_bytes, budget_formula(plan, stage.pool.budget)),
        *((f"cell_size: {t.name}", t.num_bytes, t.formula) for t in stage.pool.cell.terms),
        ("cell_size", stage.pool.cell.num_bytes, "the sum of its terms"),
        *token_rows(plan, stage),
        ("max_running_requests_of_rank", plan.max_running_requests, running_formula(plan)),
        *row_rows(plan),
        *(host_row(plan.resolved, least(plan, pool)) for pool in stage.host),
        *(backup_row(pool) for pool in backup_report(plan, stage)),
    ]
    return [list(row) for row in rows]


def reserve_rows(plan: Plan) -> Iterator[Row]:
    """What a decode step may take, and the row for it."""
    needs, resolved = plan.reserves, plan.resolved
    spec = resolved.speculation
    page = f"page_size {resolved.page_size} × attn_dcp {resolved.widths.attn_dcp}"
    step = "no speculation: one token a step"
    extra = "4 positions past the context"
    if spec.algorithm is not None:
        step = (
            f"{spec.num_steps or 1} steps × topk {spec.eagle_topk or 1}"
            f" and {draft_tokens(spec)} draft tokens, at pages of {needs.alloc_page_size}"
        )
        extra = f"4 + {draft_tokens(spec)} draft tokens, or the reserve and a page less one"
    yield "alloc_page_size", needs.alloc_page_size, page
    yield "alloc_len_per_decode", needs.alloc_len_per_decode, step
    yield (
        "alloc_reserve_per_decode",
        needs.alloc_reserve_per_decode,
        f"2 × {needs.alloc_len_per_decode}: the overlapped schedule runs a step ahead",
    )
    yield "extra_context_len", needs.extra_context_len, extra


def state_rows(stage: StagePlan) -> Iterator[Row]:
    """Recurrent state, where the model keeps any."""
    state = stage.pool.budget.state
    if state is None:
        return
    yield "state_slot_bytes", state.slot_bytes, "all linear layers of the stage that has most"
    resolved = stage.stage.resolved
    how = f"radix cache {'on' if resolved.radix_cache else 'off'}, {resolved.mamba_strategy}"
    yield "state_slots_per_request", state.slots_per_request, how
    yield "max_mamba_cache_size_of_rank", state.slots, state.origin


def budget_formula(plan: Plan, budget: Budget) -> str:
    """Free memory, less slack and what is set aside before KV."""
    memory = plan.memory
    spent = f" − {budget.multimodal_gib:.2f} multimodal" if budget.multimodal_gib else ""
    spent += " − the state pool" if budget.state else ""
    return (
        f"{memory.post_load_gib:.2f} GiB after loading − {memory.pre_load_gib:.2f} before"
        f" × (1 − {plan.resolved.mem_fraction_static:g}){spent}"
    )


def token_rows(plan: Plan, stage: StagePlan) -> Iterator[Row]:
    """Tokens of each pool."""
    whole = "budget_bytes / cell_size in whole pages, the least of all stages and caps"
    yield "max_total_num_tokens", plan.tokens, whole
    yield from shared_rows(plan, stage)
    if stage.pool.sliding is not None:
        yield from sliding_rows(plan.resolved, stage.pool.sliding)
    if stage.pool.compressed is not None:
        yield from compressed_rows(plan.resolved, stage.pool.compressed)
        yield "c128_state_pool_size", stage.pool.c128_state_slots, "a ring of each request row"


def shared_rows(plan: Plan, stage: StagePlan) -> Iterator[Row]:
    """Token spaces that ranks, pools or the host share."""
    resolved, buffer = plan.resolved, stage.pool.unified
    if resolved.hisparse is not None and stage.pool.compressed is None:
        ratio = resolved.logical_ratio
        yield "hisparse_logical_tokens", plan.tokens * ratio, f"max_total_num_tokens × {ratio}"
    if resolved.kv_shards > 1:
        tokens = plan.tokens * resolved.kv_shards
        yield "sharded_logical_tokens", tokens, f"max_total_num_tokens × {resolved.kv_shards}"
    if buffer is not None:
        name = "swa" if buffer.slides else "state"
        yield "unified_pool_bytes", buffer.total_bytes, "one buffer for both pools"
        yield (
            "unified_full_capacity",
            buffer.full_capacity,
            f"entries of {buffer.full_entry:,} B, if the other pool keeps none",
        )
        yield (
            f"unified_{name}_capacity",
            buffer.other_capacity,
            f"entries of {buffer.other_entry:,} B, if the full pool keeps none",
        )


def sliding_rows(resolved: Resolved, pools: TwoPools) -> Iterator[Row]:
    """Both sides, by the way in which they were split."""
    full, slide = {
        "ratio": (
            "max_total_num_tokens",
            f"full tokens × swa_full_tokens_ratio {resolved.swa_full_tokens_ratio:g}, whole pages",
        ),
        "request cap": (
            "what the sliding pool leaves, over the bytes of a full token",
            "the worst case of the running requests and the chunks in flight",
        ),
        "all sliding": ("no layer is full", "max_total_num_tokens"),
    }[pools.mode]
    yield "full_max_total_num_tokens", pools.full_tokens, full
    yield "swa_max_total_num_tokens", pools.sliding_tokens, slide


def compressed_rows(resolved: Resolved, pools: CompressedPools) -> Iterator[Row]:
    """DeepSeek-V4's pools, which all follow the full tokens."""
    shrunk = 4 * resolved.logical_ratio
    yield "full_max_total_num_tokens", pools.full_tokens, "max_total_num_tokens"
    yield (
        "swa_max_total_num_tokens",
        pools.sliding_tokens,
        f"full tokens × swa_full_tokens_ratio {resolved.swa_full_tokens_ratio:g}, whole pages",
    )
    yield "c4_max_total_num_tokens", pools.c4_tokens, f"full tokens // {shrunk}"
    yield "c128_max_total_num_tokens", pools.c128_tokens, "full tokens // 128"
    yield "c4_state_pool_size", pools.c4_state_slots, "a ring of each sliding page"


def running_formula(plan: Plan) -> str:
    """The bound that binds, among all of them."""
    requests = min((s.pool.requests for s in plan.stages), key=lambda each: each.max_running)
    bounds = ", ".join(f"{bound.name} {bound.requests:,}" for bound in requests.bounds)
    return f"the least of {bounds}"


def row_rows(plan: Plan) -> Iterator[Row]:
    """Rows of req_to_token and their width."""
    resolved = plan.resolved
    before = (
        f" + {resolved.decode_extra_slots} pre-allocated" if resolved.decode_extra_slots else ""
    )
    yield "req_to_token_rows", plan.rows, f"{plan.max_running_requests:,}{before} + a padding row"
    yield (
        "req_to_token_row_width",
        plan.reserves.row_width,
        f"context {resolved.context_length:,} + {plan.reserves.extra_context_len}",
    )


def host_row(resolved: Resolved, pool: HostPool) -> Row:
    """Slots of one host pool."""
    hicache = resolved.hicache
    how = f"hicache_ratio {hicache.ratio:g} of the device pool" if hicache.ratio else "host tokens"
    if hicache.host_free_bytes is not None and not hicache.ratio_given:
        how = f"what free host memory allows, at most {how}"
    if hicache.size_gb > 0:
        how = f"its share of hicache_size {hicache.size_gb} GB / {pool.bytes_per_token:,} B"
    return f"host_{pool.pool}_slots", pool.size, f"{how}, whole pages and one more"


def backup_row(pool: dict[str, Any]) -> Row:
    """Slots for the KV of retracted requests."""
    return (
        f"backup_{pool['pool']}_slots",
        pool["size"],
        "a fifth of the device pool, or what one request needs, or as hicache flags say",
    )
