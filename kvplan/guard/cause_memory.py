"""Causes of tokens, slots and budgets that do not follow from the measured memory."""

from __future__ import annotations

from kvplan.guard.cause_case import READ_AGAIN_GIB, Case
from kvplan.guard.log_rows import Row
from kvplan.sizing.diagnosis import smallest
from kvplan.sizing.drafts import BLOCK_DRAFTS, PRICED_LIKE_EAGLE
from kvplan.units import GIB

SAME_CELL = 1e-3
LEAST_COUNTED = 0.6  # of a token's bytes: no version is known to have counted less


def read_again(case: Case, row: Row) -> str | None:
    """A little less than was free: the engine reads its memory again after small allocations."""
    missing = missing_of(case, row)
    if 0 < missing <= READ_AGAIN_GIB:
        return f"{missing * 1024:.0f} MiB less: small allocations came between two readings of the memory"
    return None


def missing_of(case: Case, row: Row) -> float:
    """GiB of tokens, state slots or budget that the memory allows and the log does not have."""
    match row.name:
        case "max_total_num_tokens":
            return case.missing_gib(row)
        case "max_mamba_cache_size":
            state = case.plan.stages[0].pool.budget.state if case.plan else None
            return (row.low - row.observed) * (state.slot_bytes if state else 0) / GIB
    return float(row.low - row.observed)


def printed_cell(case: Case, row: Row) -> str | None:
    """DeepSeek-V4's own bytes a token, where the log prints them."""
    cell = case.log.value("bytes_per_full_token")
    if not isinstance(cell, float) or not case.cell or abs(cell / case.cell - 1) < SAME_CELL:
        return None
    del row
    return f"the log counts {cell:,.2f} B a full token, the plan {case.cell:,.2f}: a version with another layout"


def post_capture(case: Case, row: Row) -> str | None:
    del row
    if case.event("post_capture_sizing") is None:
        return None
    return "the log's server sizes its pools after it has captured its graphs, which no plan models"


def unknown_draft(case: Case, row: Row) -> str | None:
    """A draft in the log and none in the launch."""
    del row
    draft = case.log.get("weights_gib", draft=True) or case.log.get(
        "avail_after_load_gib", draft=True
    )
    if draft is None or case.sizing.resolved.speculation.algorithm is not None:
        return None
    return f"the log loads a draft (line {draft.line}) that the launch does not name: add --speculative-algorithm"


def draft_came_later(case: Case, row: Row) -> str | None:
    """The reading after the weights may miss the draft's."""
    algorithm = case.sizing.resolved.speculation.algorithm
    loads = algorithm in PRICED_LIKE_EAGLE | BLOCK_DRAFTS
    logged = case.log.get("avail_after_load_gib", draft=True)
    missing = case.missing_gib(row)
    if not loads or logged is not None or missing <= 0:
        return None
    return f"{missing:.2f} GiB less: the log's reading comes before the draft's weights"


def open_fraction(case: Case, row: Row) -> str | None:
    """Without mem_fraction_static in the launch the plan takes today's default."""
    if case.gives("mem_fraction_static"):
        return None
    fraction = fraction_for(case)
    own = case.sizing.resolved.mem_fraction_static
    if fraction is None or not slots_agree(case, row, fraction):
        return None
    return f"the launch leaves the fraction open: the log's tokens need {fraction:.3f}, the plan's default is {own:.3f}"


def fraction_for(case: Case) -> float | None:
    """The smallest mem_fraction_static, in thousandths, that gives the log's tokens in the measured memory."""

    def enough(millis: int) -> bool:
        plan = case.sizing.changed(mem_fraction_static=millis / 1000).in_memory(memory)
        return plan is not None and case.tokens is not None and plan.tokens >= case.tokens

    memory = case.planned.outcome.memory
    millis = smallest(1, 999, enough)
    return None if millis is None else millis / 1000


def slots_agree(case: Case, row: Row, fraction: float) -> bool:
    """Whether state slots follow from the same fraction."""
    if row.name != "max_mamba_cache_size":
        return True
    plan = case.sizing.changed(mem_fraction_static=fraction).in_memory(case.planned.outcome.memory)
    state = plan.stages[0].pool.budget.state if plan else None
    return state is not None and abs(state.slots - row.observed) <= max(2, state.slots // 20)


def page_rounding(case: Case, row: Row) -> str | None:
    """Whole pages of another size."""
    distance = min(abs(row.observed - row.low), abs(row.observed - row.high))
    page = max(case.sizing.resolved.page_size, 256)
    if distance < page and case.sizing.resolved.page_size != 1:
        return "the tokens are rounded to whole pages of another size"
    return None


def kv_share(case: Case, row: Row) -> str | None:
    """A hybrid model whose state pool the log does not show."""
    plan = case.plan
    state = plan.stages[0].pool.budget.state if plan else None
    if plan is None or state is None or case.logged_slots:
        return None
    rest = plan.stages[0].pool.budget.num_bytes / GIB + (state.slots + 1) * state.slot_bytes / GIB
    taken = float(row.observed) * case.cell / GIB
    if not 0 < taken < rest:
        return None
    own = case.sizing.resolved.mamba_full_memory_ratio
    return (
        f"KV takes {taken:.2f} of {rest:.2f} GiB, which leaves the state a ratio of {rest / taken - 1:.2f} where the"
        f" plan has {own:g}: --mamba-full-memory-ratio or --max-mamba-cache-size"
    )


def undercounted(case: Case, row: Row) -> str | None:
    """More tokens than the budget holds, stored as the plan stores them."""
    plan = case.plan
    if plan is None or row.observed <= row.high or row.name != "max_total_num_tokens":
        return None
    budget = plan.stages[0].pool.budget.num_bytes
    counted = budget / float(row.observed)
    if counted < case.cell * LEAST_COUNTED:
        return None
    return (
        f"{-case.missing_gib(row):.2f} GiB more than the budget: that version counted"
        f" {counted:,.0f} B a token, and its pool takes {case.cell:,.0f}"
    )


def beyond_the_budget(case: Case, row: Row) -> str | None:
    """More than any known rule would give."""
    if case.plan is None or row.observed <= row.high:
        return None
    return f"{-case.missing_gib(row):.2f} GiB more than the budget allows: a patched build, or a larger fraction"


def unbalanced(case: Case, row: Row) -> str | None:
    del row
    event = case.event("unbalanced_memory")
    if event is None:
        return None
    return f"the log warns (line {event.line}) that its cards have unequal free memory: another process on one"


def adapters(case: Case, row: Row) -> str | None:
    """LoRA adapters take memory that no plan counts."""
    if row.observed >= row.low or not lora(case):
        return None
    return "LoRA adapters take memory that the plan does not model"


def lora(case: Case) -> bool:
    return bool(case.log.arguments.get("enable_lora") or case.log.arguments.get("lora_paths"))


def memory_elsewhere(case: Case, row: Row) -> str | None:
    """Memory that was free after the weights and never reached the pools."""
    missing, fraction = case.missing_gib(row), fraction_for(case)
    if missing <= READ_AGAIN_GIB or fraction is None:
        return None
    return (
        f"{missing:.2f} GiB of the free memory never reached the pools: another process on the card,"
        f" a cap that the launch does not show, or a fraction of {fraction:.3f}"
    )


def asked_slots(case: Case, row: Row) -> str | None:
    """State slots that the launch names."""
    if not case.gives("max_mamba_cache_size"):
        return None
    return f"the launch asks for {row.predicted:,} state slots: a patched build, or other arguments"


def state_ratio(case: Case, row: Row) -> str | None:
    """State slots by another split of the memory."""
    plan = case.plan
    state = plan.stages[0].pool.budget.state if plan else None
    if plan is None or state is None:
        return None
    rest = state.rest_gib + (state.slots + 1) * state.slot_bytes / GIB
    taken = (float(row.observed) + 1) * state.slot_bytes / GIB
    if not 0 < taken < rest:
        return None
    own = case.sizing.resolved.mamba_full_memory_ratio
    return (
        f"the log's state takes {taken:.2f} GiB, a ratio of {taken / (rest - taken):.3g} to KV where the plan"
        f" has {own:g}: --mamba-full-memory-ratio, or another version's split"
    )
