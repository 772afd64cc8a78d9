"""The KV buffers of a draft: its own layers and geometry over the target's token space."""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.sizing.compressed import DRAFT_LAYERS, latent_page_bytes
from kvplan.sizing.drafts import BLOCK_DRAFTS, EAGLE_LIKE
from kvplan.sizing.kv_tensors import INDEX_PAGE, STORE_DTYPES, mha_tensors
from kvplan.sizing.layout import index_key_bytes
from kvplan.sizing.plan import Plan, StagePlan
from kvplan.sizing.shapes import kv_heads_per_rank
from kvplan.sizing.stage import Stage
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
    if planned.pool.compressed is not None and stage.model.compressed is not None:
        pages = ceil_div(planned.pool.compressed.sliding_tokens + page, page)
        row = latent_page_bytes(stage.model.compressed, page)
        yield TensorPlan("draft KV", "latent", DRAFT_LAYERS, (pages, row), "uint8")
        return
    geometry = plan.draft or plan.model
    sliding_tokens = planned.pool.sliding.sliding_tokens if planned.pool.sliding else 0
    full = drafts.total - drafts.sliding
    for layers, tokens in ((full, planned.pool.tokens), (drafts.sliding, sliding_tokens)):
        if layers > 0 and tokens:
            slides = tokens == sliding_tokens and layers == drafts.sliding
            yield from pool_tensors(stage, geometry, layers, (tokens + page) * dcp, slides)


def pool_tensors(
    stage: Stage, model: ModelSpec, layers: int, slots: int, slides: bool
) -> Iterator[TensorPlan]:
    """K and V, or the latent and its index keys, of a draft's layers."""
    resolved = stage.resolved
    attention = model.sliding if slides and model.sliding is not None else model.attention
    if isinstance(attention, Mla):
        width = attention.kv_lora_rank + attention.qk_rope_head_dim
        dtype = STORE_DTYPES.get(resolved.kv_cache_dtype, resolved.kv_cache_dtype)
        yield TensorPlan("draft KV", "latent", layers, (slots, 1, width), dtype)
        if model.indexer is not None:
            row = INDEX_PAGE * index_key_bytes(model.indexer.head_dim, model.indexer.kpool)
            shape = (ceil_div(slots, INDEX_PAGE), row)
            yield TensorPlan("draft KV", "index_key", layers, shape, "uint8")
        return
    heads = kv_heads_per_rank(attention.num_kv_heads, resolved.widths.attn_tp)
    dims = (attention.head_dim, attention.v_head_dim)
    yield from mha_tensors("draft KV", resolved, layers, slots, heads, dims)
