"""The tensors of the recurrent state: slots, snapshots, and what request rows keep of them."""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.sizing.plan import Plan, StagePlan
from kvplan.sizing.recurrent import tracking_slots
from kvplan.sizing.resolved import Resolved
from kvplan.sizing.shapes import state_shapes
from kvplan.sizing.tensor import TensorPlan
from kvplan.spec.state import KdaState, StateKind, StreamConvState

TRACKED_BY_OVERLAP = {True: 2, False: 1}  # ping-pong slots a row has room for


def state_row_tensors(plan: Plan) -> Iterator[TensorPlan]:
    """The row's state slot, and its tracking slots where its strategy has any."""
    yield TensorPlan("rows", "state_slot_of_row", 1, (plan.rows,), "int32")
    if tracks(plan.resolved):
        tracked = TRACKED_BY_OVERLAP[plan.resolved.overlap_schedule]
        yield TensorPlan("rows", "tracking_slots_of_row", 1, (plan.rows, tracked), "int64")


def state_tensors(plan: Plan, stage: StagePlan) -> Iterator[TensorPlan]:
    """Conv windows and recurrent state of all slots, and snapshots where a draft is verified."""
    state, linear = stage.pool.budget.state, stage.stage.model.linear
    if state is None or linear is None or stage.pool.unified is not None:
        return
    layers = len(stage.stage.layers.linear)
    shapes = state_shapes(linear.state, plan.resolved.widths.attn_tp)
    ssm = plan.resolved.mamba_ssm_dtype or linear.ssm_dtype
    slots = physical_slots(plan, stage)
    rows = slots + 1
    for conv in shapes.conv:
        yield TensorPlan("state", "conv", 1, (layers, rows, *conv), linear.conv_dtype)
    yield TensorPlan("state", "temporal", 1, (layers, rows, *shapes.temporal), ssm)
    yield TensorPlan("state", "free_slots", 1, (slots,), "int64")
    if state.draft_tokens:
        yield from snapshot_tensors(plan, stage, shapes.conv, shapes.temporal)


def snapshot_tensors(
    plan: Plan,
    stage: StagePlan,
    convs: tuple[tuple[int, int], ...],
    temporal: tuple[int, ...],
) -> Iterator[TensorPlan]:
    """One state per draft token and running request; a chain's conv windows share storage."""
    state, linear = stage.pool.budget.state, stage.stage.model.linear
    assert state is not None
    assert linear is not None
    layers, rows, drafts = len(stage.stage.layers.linear), plan.rows, state.draft_tokens
    ssm = plan.resolved.mamba_ssm_dtype or linear.ssm_dtype
    yield TensorPlan("state", "snapshot_temporal", 1, (layers, rows, drafts, *temporal), ssm)
    chain = plan.resolved.speculation.eagle_topk == 1 and windows_last(linear.state)
    for conv in convs:
        channels, window = conv
        if not chain:
            shape = (layers, rows, drafts, *conv)
            yield TensorPlan("state", "snapshot_conv", 1, shape, linear.conv_dtype)
            continue
        span = drafts + window - 1
        yield TensorPlan(
            "state", "snapshot_conv", 1, (layers, rows, channels, span), linear.conv_dtype
        )
        yield TensorPlan(
            "state",
            "snapshot_conv_window",
            1,
            (layers, rows, drafts, channels, window),
            linear.conv_dtype,
            view_stride=(rows * channels * span, channels * span, 1, span, 1),
        )


def windows_last(state: StateKind) -> bool:
    """Whether the window is a conv state's last axis: only there do consecutive ones overlap."""
    return not isinstance(state, KdaState | StreamConvState)


def physical_slots(plan: Plan, stage: StagePlan) -> int:
    """A decode node raises its slots to one a row and tracking slots beside it."""
    state, resolved = stage.pool.budget.state, plan.resolved
    assert state is not None
    if resolved.disaggregation_mode != "decode":
        return state.slots
    tracking = TRACKED_BY_OVERLAP[resolved.overlap_schedule] if tracks(resolved) else 0
    return max(state.slots, (plan.rows - 1) * (1 + tracking))


def tracks(resolved: Resolved) -> bool:
    """Whether rows carry tracking slots: an extra-buffer strategy beside a radix cache."""
    return resolved.radix_cache and tracking_slots(resolved) > 0
