"""The sizes of a recorded state as a plan has them, and whether a state is of a plan."""

from __future__ import annotations

from typing import NamedTuple

from kvplan.errors import InputError
from kvplan.sizing.plan import Plan
from kvplan.sizing.state_tensors import physical_slots
from kvplan.state.recorded import Recorded
from kvplan.units import floor_page


class StateSizes(NamedTuple):
    """Sizes that every state of a launch has, over all ranks of one token space; 0 for no such pool."""

    page_size: int
    rows: int
    row_width: int
    tokens: int
    sliding_tokens: int
    state_slots: int


WORDS = {
    "page_size": "tokens a page",
    "rows": "rows",
    "row_width": "positions a row",
    "tokens": "tokens of KV",
    "sliding_tokens": "sliding tokens",
    "state_slots": "state slots",
}


def plan_sizes(plan: Plan) -> StateSizes:
    """The sizes of any state of this plan, the least of all stages where they differ."""
    page_size = plan.reserves.alloc_page_size
    two = [stage.pool.sliding or stage.pool.compressed for stage in plan.stages]
    sliding = [each.sliding_tokens for each in two if each is not None and each.sliding_tokens]
    slots = [
        physical_slots(plan, stage) for stage in plan.stages if stage.pool.budget.state is not None
    ]
    return StateSizes(
        page_size=page_size,
        rows=plan.rows,
        row_width=plan.reserves.row_width,
        tokens=floor_page(logical_tokens(plan), page_size),
        sliding_tokens=min(sliding, default=0),
        state_slots=min(slots, default=0),
    )


def logical_tokens(plan: Plan) -> int:
    """Tokens of all ranks that share one space; under HiSparse those on the host too."""
    resolved, two = plan.resolved, any(stage.pool.compressed for stage in plan.stages)
    ratio = 1 if two else resolved.logical_ratio
    return plan.tokens * resolved.widths.attn_dcp * resolved.kv_shards * ratio


def recorded_sizes(recorded: Recorded) -> StateSizes:
    """The same sizes as a state has them."""
    state = recorded.state
    return StateSizes(
        page_size=state.page_size,
        rows=state.rows,
        row_width=state.row_width,
        tokens=state.kv.tokens,
        sliding_tokens=state.sliding.tokens if state.sliding else 0,
        state_slots=state.state.slots if state.state else 0,
    )


def check_state_of(plan: Plan, recorded: Recorded, *, is_own: bool) -> None:
    """InputError where a state is not one of this plan: its addresses would be wrong.

    `is_own`: the plan is of the launch that the state names.
    """
    planned, found = plan_sizes(plan), recorded_sizes(recorded)
    whose = " of its own launch" if is_own else ""
    hint = "name the launch that was recorded"
    if not is_own:
        hint += ", or no MODEL at all to take the state's own"
    for name, size in planned._asdict().items():
        has = getattr(found, name)
        if has != size:
            raise InputError(
                f"the state has {has:,} {WORDS[name]}, the plan{whose} {size:,}",
                where=recorded.where,
                hint=hint,
            )
