"""The recurrent state of a planned stage."""

from __future__ import annotations

from kvplan.pools.build_kv import torch_dtype
from kvplan.pools.recurrent import StatePool
from kvplan.pools.storage import Storage
from kvplan.sizing.plan import Plan, StagePlan
from kvplan.sizing.shapes import state_shapes
from kvplan.sizing.tensors import physical_slots
from kvplan.spec.state import KdaState, StateKind, StreamConvState


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


def windows_last(state: StateKind) -> bool:
    """Whether the window is a conv state's last axis: only there do consecutive ones overlap."""
    return not isinstance(state, KdaState | StreamConvState)
