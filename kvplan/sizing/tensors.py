"""Every tensor that the target's pools are made of: name, count, shape and dtype, without torch."""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.sizing.kv_tensors import kv_tensors
from kvplan.sizing.plan import Plan, StagePlan
from kvplan.sizing.tensor import TensorPlan


def stage_tensors(plan: Plan, stage: StagePlan) -> tuple[TensorPlan, ...]:
    """Rows, state and KV of one stage, in that order."""
    rows = tuple(row_tensors(plan))
    if plan.resolved.kv_shards > 1:
        from kvplan.sizing.sharding import scratch_tensors

        rows += tuple(scratch_tensors(stage.stage))
    if stage.pool.budget.state is None:
        return (*rows, *kv_tensors(stage))
    from kvplan.sizing.state_tensors import state_row_tensors, state_tensors

    return (*rows, *state_row_tensors(plan), *state_tensors(plan, stage), *kv_tensors(stage))


def row_tensors(plan: Plan) -> Iterator[TensorPlan]:
    """req_to_token and the generation of each row."""
    yield TensorPlan("rows", "req_to_token", 1, (plan.rows, plan.reserves.row_width), "int32")
    yield TensorPlan("rows", "req_generation", 1, (plan.rows,), "int64")
