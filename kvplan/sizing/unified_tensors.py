"""The views of a unified buffer: both sides over all of it, however they share it at run time."""

from __future__ import annotations

import math
from collections.abc import Iterator

from kvplan.sizing.capacities import UnifiedBuffer
from kvplan.sizing.kv_tensors import STORE_DTYPES
from kvplan.sizing.plan import StagePlan
from kvplan.sizing.shapes import state_shapes
from kvplan.sizing.stage import Stage
from kvplan.sizing.tensor import DTYPE_BYTES, TensorPlan
from kvplan.sizing.unified import dense_rows, dense_strides


def unified_tensors(planned: StagePlan) -> Iterator[TensorPlan]:
    """The buffer, then its views: a token of all layers, or a state slot, is one run of bytes."""
    stage, shared = planned.stage, planned.pool.unified
    assert shared is not None
    yield TensorPlan("unified", "buffer", 1, (shared.total_bytes,), "uint8")
    yield from token_views(stage, shared, slides=False)
    if shared.slides:
        yield from token_views(stage, shared, slides=True)
    else:
        yield from slot_views(stage, shared)


def token_views(stage: Stage, shared: UnifiedBuffer, *, slides: bool) -> Iterator[TensorPlan]:
    """A view a layer of each row family, in whole pages; the stride is a token's entry."""
    entry = shared.other_entry if slides else shared.full_entry
    layers = stage.layers.sliding if slides else stage.layers.full
    slots = shared.total_bytes // entry // shared.page_size * shared.page_size
    kv_dtype = stage.resolved.kv_cache_dtype
    dtype = STORE_DTYPES.get(kv_dtype, kv_dtype)
    pool = "sliding" if slides else "full"
    for name, row in dense_rows(stage, slides=slides).items():
        stride = (entry // DTYPE_BYTES[dtype], *dense_strides(row))
        yield TensorPlan(pool, name, len(layers), (slots, *row), dtype, view_stride=stride)


def slot_views(stage: Stage, shared: UnifiedBuffer) -> Iterator[TensorPlan]:
    """Conv windows and recurrent state of all layers, by state slot."""
    linear, resolved = stage.model.linear, stage.resolved
    assert linear is not None
    shapes = state_shapes(linear.state, resolved.widths.attn_tp)
    ssm = resolved.mamba_ssm_dtype or linear.ssm_dtype
    parts = [("conv", row, linear.conv_dtype) for row in shapes.conv]
    layers, slots = len(stage.layers.linear), shared.total_bytes // shared.other_entry
    for name, row, dtype in (*parts, ("temporal", shapes.temporal, ssm)):
        stride = (math.prod(row), shared.other_entry // DTYPE_BYTES[dtype], *dense_strides(row))
        yield TensorPlan("state", name, 1, (layers, slots, *row), dtype, view_stride=stride)
