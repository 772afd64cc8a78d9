"""The same plan with small KV: one layer of each kind, one head, dimension 8.

Slots, pages, rows, mappings and free lists keep their full size, so everything that allocates
behaves as planned; only what a slot holds is small. Block-scaled caches keep one block.
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from kvplan.sizing.capacities import UnifiedBuffer
from kvplan.sizing.cell import packs_latents
from kvplan.sizing.drafts import DraftLayers
from kvplan.sizing.nvfp4 import nvfp4_layouts
from kvplan.sizing.plan import Plan, StagePlan
from kvplan.sizing.resolved import Resolved
from kvplan.sizing.shapes import StageLayers
from kvplan.sizing.stage import Stage
from kvplan.sizing.unified import ROW_ALIGN, entries, laid_out
from kvplan.spec.model import Compressed, Mha, Mla, ModelSpec, Sliding, Sparse
from kvplan.spec.state import (
    CcaState,
    KdaState,
    LightningState,
    LinearState,
    Mamba2State,
    ShortConvState,
    StateKind,
    StreamConvState,
)

DIM = 8
PACKED_RANK = 128  # latents with a scale per 128 values keep one of them
LATENT_TILE = 64  # DeepSeek-V4 keeps one scaled tile of its latents
BLOCK_DIMS = {"mxfp8": 32, "fp4_mx_block16": 16, "nvfp4": 16}
NATIVE_NVFP4_DIM = 64
FP4 = "float4_e2m1fn_x2"


def scale_down(plan: Plan) -> Plan:
    """A plan with the same slots everywhere and as little in them as the layout allows."""
    widths = msgspec.structs.replace(plan.resolved.widths, attn_tp=1)
    resolved = msgspec.structs.replace(plan.resolved, widths=widths)
    return msgspec.structs.replace(
        plan,
        model=scaled_model(plan.model, resolved),
        draft=plan.draft and scaled_model(plan.draft, resolved),
        resolved=resolved,
        stages=tuple(scaled_stage(stage, resolved) for stage in plan.stages),
    )


def scaled_stage(planned: StagePlan, resolved: Resolved) -> StagePlan:
    """One stage with its first layer of each kind."""
    stage = planned.stage
    model, drafts = scaled_model(stage.model, resolved), stage.draft_layers
    span = stage.span
    if stage.model.compressed is not None:
        compressed = one_layer_a_ratio(stage.model.compressed, stage.span)
        span = range(len(compressed.ratios))
        model = msgspec.structs.replace(model, compressed=compressed, num_layers=len(span))
    layers = first_layers(stage)
    if stage.model.sparse is not None:
        local = [each for each in stage.model.sparse.sparse_layers if each in stage.span]
        layers = msgspec.structs.replace(layers, full=tuple(local[:1]) or layers.full)
        model = msgspec.structs.replace(model, sparse=first_sparse(stage.model.sparse, local))
    scaled = msgspec.structs.replace(
        stage,
        model=model,
        draft=stage.draft and scaled_model(stage.draft, resolved),
        resolved=resolved,
        span=span,
        layers=layers,
        draft_layers=drafts and one_draft_layer(drafts),
        kv_heads=1,
    )
    pool = planned.pool
    if pool.unified is not None:
        shared = scaled_buffer(scaled, pool.unified)
        pool = msgspec.structs.replace(pool, unified=shared)
    return msgspec.structs.replace(planned, stage=scaled, pool=pool)


def scaled_buffer(scaled: Stage, shared: UnifiedBuffer) -> UnifiedBuffer:
    """A buffer in which each side alone holds at least what it holds alone in the plan's."""
    full, other = entries(scaled, slides=shared.slides)
    other_page = shared.page_size if shared.slides else 1
    reserved = max(shared.page_size * full, other_page * other)
    # a page more, since the other side's page rounds
    full_bytes = (shared.full_capacity + shared.page_size) * full + other_page * other
    other_bytes = (shared.other_capacity + other_page) * other + shared.page_size * full
    total = reserved + max(full_bytes, other_bytes)
    found = laid_out(scaled, total, full, other, slides=shared.slides)
    assert isinstance(found, UnifiedBuffer), found.problem
    return found


def scaled_model(model: ModelSpec, resolved: Resolved) -> ModelSpec:
    """One head of the least dimension that the cache's layout takes."""
    return msgspec.structs.replace(
        model,
        kv_layers_per_layer=1,
        attention=scaled_attention(model, model.attention, resolved),
        sliding=model.sliding and scaled_sliding(model.sliding, resolved),
        linear=model.linear and scaled_linear(model.linear),
    )


def scaled_attention(model: ModelSpec, attention: Mha | Mla, resolved: Resolved) -> Mha | Mla:
    """One head, or one short latent."""
    if isinstance(attention, Mha):
        dim = head_dim(resolved)
        return Mha(num_kv_heads=1, head_dim=dim, v_head_dim=dim)
    rank = ROW_ALIGN if resolved.unified_memory else DIM
    if packs_latents(resolved, model.indexer):
        rank = PACKED_RANK
    elif resolved.kv_cache_dtype == FP4:
        rank = BLOCK_DIMS["fp4_mx_block16"]
    return Mla(kv_lora_rank=rank, qk_rope_head_dim=0)


def scaled_sliding(sliding: Sliding, resolved: Resolved) -> Sliding:
    """The sliding side likewise; its recipe is MXFP8 or none."""
    dim = head_dim(resolved)
    return msgspec.structs.replace(sliding, num_kv_heads=1, head_dim=dim, v_head_dim=dim)


def head_dim(resolved: Resolved) -> int:
    """The smallest head that the launch's recipe stores."""
    if resolved.unified_memory:
        return ROW_ALIGN
    if resolved.kv_recipe is None:
        return DIM
    if resolved.kv_recipe == "nvfp4" and nvfp4_layouts(resolved).native:
        return NATIVE_NVFP4_DIM
    return BLOCK_DIMS[resolved.kv_recipe]


def scaled_linear(linear: LinearState) -> LinearState:
    """One state head of dimension 8; conv windows keep their length."""
    return msgspec.structs.replace(linear, state=scaled_state(linear.state))


def scaled_state(state: StateKind) -> StateKind:
    """The same kind of state, small."""
    match state:
        case Mamba2State():
            return msgspec.structs.replace(
                state,
                intermediate_size=DIM,
                num_groups=1,
                num_heads=1,
                head_dim=DIM,
                state_size=DIM,
            )
        case KdaState():
            return msgspec.structs.replace(
                state, num_heads=1, head_dim=DIM, num_k_heads=1, head_k_dim=DIM
            )
        case LightningState():
            return LightningState(num_heads=1, head_dim=DIM)
        case ShortConvState():
            return msgspec.structs.replace(state, conv_dim=DIM)
        case CcaState():
            return msgspec.structs.replace(state, channels=DIM, hidden_size=DIM)
        case StreamConvState():
            return msgspec.structs.replace(
                state,
                num_kv_heads=1,
                head_dim=DIM,
                sliding_kv_heads=1,
                sliding_head_dim=DIM,
                hidden_size=DIM,
            )
        case _:
            assert_never(state)


def first_layers(stage: Stage) -> StageLayers:
    """The first layer of each kind; a layer with index keys where there is one."""
    layers = stage.layers
    full = layers.indexer[:1] or layers.full[:1]
    return StageLayers(
        full=full,
        sliding=layers.sliding[:1],
        linear=layers.linear[:1],
        indexer=layers.indexer[:1],
    )


def one_layer_a_ratio(compressed: Compressed, span: range) -> Compressed:
    """Layers renumbered: one of each ratio of the stage, with one scaled tile a latent."""
    ratios = sorted({compressed.ratios[layer] for layer in span})
    return msgspec.structs.replace(
        compressed,
        ratios=tuple(ratios),
        qk_nope_head_dim=LATENT_TILE,
        qk_rope_head_dim=DIM,
    )


def first_sparse(sparse: Sparse, local: list[int]) -> Sparse:
    """The stage's first sparse layer alone, or its dense ones where it has none."""
    if not local:
        return msgspec.structs.replace(sparse, index_head_dim=DIM)
    return msgspec.structs.replace(
        sparse, dense_layers=(), sparse_layers=tuple(local[:1]), index_head_dim=DIM
    )


def one_draft_layer(drafts: DraftLayers) -> DraftLayers:
    """One draft layer at each pool's length."""
    sliding = min(drafts.sliding, 1)
    return DraftLayers(total=min(drafts.total - drafts.sliding, 1) + sliding, sliding=sliding)
