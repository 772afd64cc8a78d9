"""The request rows of a plan, and the recurrent state of its stages."""

from __future__ import annotations

from kvplan.allocators.slots import StateSlotAllocator
from kvplan.pools.hybrid_rows import HybridRequestRows, TrackingPlan
from kvplan.pools.recurrent import StatePool
from kvplan.pools.rows import RequestRows
from kvplan.pools.storage import Storage, torch_dtype
from kvplan.sizing.plan import Plan, StagePlan
from kvplan.sizing.shapes import state_shapes
from kvplan.sizing.state_tensors import physical_slots, tracks, windows_last


def request_rows(
    plan: Plan,
    state: StatePool | None,
    storage: Storage,
    state_slots: StateSlotAllocator | None = None,
) -> RequestRows:
    """Rows of one rank; with recurrent state they own its slots too, or take them from `state_slots`."""
    size, width = plan.max_running_requests, plan.reserves.row_width
    waiting, resolved = plan.resolved.decode_extra_slots, plan.resolved
    if state is None:
        return RequestRows(size, width, pre_alloc_rows=waiting, storage=storage)
    tracking = TrackingPlan.of(
        extra_buffer=tracks(resolved),
        overlap=resolved.overlap_schedule,
        lazy=resolved.mamba_strategy == "extra_buffer_lazy",
    )
    return HybridRequestRows(
        size,
        width,
        pre_alloc_rows=waiting,
        storage=storage,
        states=state,
        tracking=tracking,
        state_slots=state_slots,
    )


def state_pool(plan: Plan, planned: StagePlan, storage: Storage) -> StatePool | None:
    """State of the stage's linear layers; None where the model has none."""
    state, linear = planned.pool.budget.state, planned.stage.model.linear
    if state is None or linear is None:
        return None
    resolved = plan.resolved
    shapes = state_shapes(linear.state, resolved.widths.attn_tp)
    return StatePool(
        slots=physical_slots(plan, planned),
        layer_ids=planned.stage.layers.linear,
        conv_shapes=shapes.conv,
        temporal_shape=shapes.temporal,
        conv_dtype=torch_dtype(linear.conv_dtype),
        temporal_dtype=torch_dtype(resolved.mamba_ssm_dtype or linear.ssm_dtype),
        storage=storage,
        running=plan.rows - 1,
        draft_tokens=state.draft_tokens,
        dedup_windows=resolved.speculation.eagle_topk == 1 and windows_last(linear.state),
    )
