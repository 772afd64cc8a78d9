"""The KV buffers of a draft: its own layers and geometry over the target's token space."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kvplan.sizing.cell import block_draft_tp, packs_latents
from kvplan.sizing.compressed import DRAFT_LAYERS, latent_page_bytes
from kvplan.sizing.compressed_tensors import latent_dtype
from kvplan.sizing.drafts import BLOCK_DRAFTS, EAGLE_LIKE
from kvplan.sizing.kv_tensors import index_key_tensors, latent_tensors, mha_tensors
from kvplan.sizing.plan import Plan, StagePlan
from kvplan.sizing.resolved import Resolved
from kvplan.sizing.shapes import kv_heads_per_rank
from kvplan.sizing.tensor import TensorPlan
from kvplan.spec.model import Mla, ModelSpec
from kvplan.units import ceil_div


def draft_tensors(plan: Plan, planned: StagePlan) -> Iterator[TensorPlan]:
    """The draft's pool on this stage; drafts run on the last one alone."""
    stage, algorithm = planned.stage, plan.resolved.speculation.algorithm
    drafts = stage.draft_layers
    if drafts is None or algorithm not in EAGLE_LIKE | BLOCK_DRAFTS:
        return
    page, dcp = plan.resolved.page_size, plan.resolved.widths.attn_dcp
    if plan.resolved.request_ring is not None:
        yield from ring_draft(plan, planned)
        return
    if planned.pool.compressed is not None and stage.model.compressed is not None:
        pages = ceil_div(planned.pool.compressed.sliding_tokens + page, page)
        row = latent_page_bytes(plan.resolved, stage.model.compressed, page)
        dtype = latent_dtype(plan.resolved)
        yield TensorPlan("draft KV", "latent", DRAFT_LAYERS, (pages, row), dtype)
        return
    model, resolved = plan.draft or plan.model, draft_storage(plan.resolved)
    sliding_tokens = planned.pool.sliding.sliding_tokens if planned.pool.sliding else 0
    full = drafts.total - drafts.sliding
    sides = ((full, planned.pool.tokens, False), (drafts.sliding, sliding_tokens, True))
    for layers, tokens, slides in sides:
        if layers > 0 and tokens:
            slots = (tokens * plan.resolved.logical_ratio + page) * dcp
            yield from pool_tensors(resolved, model, layers, slots, slides)


def ring_draft(plan: Plan, planned: StagePlan) -> Iterator[TensorPlan]:
    """DeepSeek-V4's draft layer in rings: fp8 as the target's, but bf16 for DSPARK."""
    from kvplan.sizing.request_ring import FP8_ROW, ring_tokens

    compressed, resolved = planned.stage.model.compressed, plan.resolved
    assert compressed is not None
    rows = plan.rows * ring_tokens(resolved, compressed.window)
    rope = compressed.qk_rope_head_dim
    if resolved.request_ring == "fp8" and resolved.speculation.algorithm != "DSPARK":
        yield TensorPlan("draft KV", "latent", DRAFT_LAYERS, (rows, FP8_ROW), "float8_e4m3fn")
        yield TensorPlan("draft KV", "rope", DRAFT_LAYERS, (rows, rope), "bfloat16")
        return
    width = compressed.qk_nope_head_dim + rope
    yield TensorPlan("draft KV", "latent", DRAFT_LAYERS, (rows, width), "bfloat16")


def draft_storage(resolved: Resolved) -> Resolved:
    """The launch with the KV dtype of its draft, where a block draft has one of its own."""
    own = resolved.draft_kv_cache_dtype
    if own is None or own == resolved.kv_cache_dtype:
        return resolved
    return msgspec.structs.replace(resolved, kv_cache_dtype=own, kv_recipe=None)


def pool_tensors(
    resolved: Resolved, model: ModelSpec, layers: int, slots: int, slides: bool
) -> Iterator[TensorPlan]:
    """K and V, or the latent and its index keys, of a draft's layers."""
    attention = model.sliding if slides and model.sliding is not None else model.attention
    if isinstance(attention, Mla):
        indexer = model.indexer
        packed = packs_latents(resolved, indexer)
        raw_fp4 = indexer is not None
        yield from latent_tensors(
            "draft KV", resolved, attention, layers, slots, raw_fp4=raw_fp4, packed=packed
        )
        if indexer is not None:
            yield from index_key_tensors("draft KV", indexer, layers, layers, slots)
        return
    heads = kv_heads_per_rank(attention.num_kv_heads, block_draft_tp(resolved))
    dims = (attention.head_dim, attention.v_head_dim)
    yield from mha_tensors("draft KV", resolved, layers, slots, heads, dims)
