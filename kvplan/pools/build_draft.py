"""The draft's KV pools of a planned stage: its own layers over the target's token space."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvplan.pools.base import KvPool
from kvplan.pools.build_compressed import latents, row_latents
from kvplan.pools.build_kv import FP4, dsa_pool, mha_pool, mla_pool
from kvplan.pools.mla import Fp4MlaPool, MlaPool
from kvplan.pools.row_latent import RowLatentPool, latent_rows
from kvplan.pools.storage import Storage
from kvplan.sizing.cell import block_draft_tp
from kvplan.sizing.compressed import DRAFT_LAYERS
from kvplan.sizing.draft_tensors import draft_storage
from kvplan.sizing.drafts import BLOCK_DRAFTS, EAGLE_LIKE
from kvplan.sizing.plan import Plan, StagePlan
from kvplan.sizing.request_ring import ring_tokens
from kvplan.sizing.resolved import Resolved
from kvplan.sizing.shapes import kv_heads_per_rank
from kvplan.sizing.stage import Stage
from kvplan.spec.model import Mla, ModelSpec


def draft_pools(plan: Plan, planned: StagePlan, storage: Storage) -> Iterator[KvPool]:
    """Draft layers as long as the full pool, then those as long as the sliding one.

    Under decode context parallelism the draft keeps the tokens of all ranks.
    """
    stage, pool, resolved = planned.stage, planned.pool, plan.resolved
    drafts = stage.draft_layers
    if drafts is None or resolved.speculation.algorithm not in EAGLE_LIKE | BLOCK_DRAFTS:
        return
    page, dcp = resolved.page_size, resolved.widths.attn_dcp
    if resolved.request_ring is not None:
        yield ring_draft(plan, stage, storage)
        return
    if pool.compressed is not None and stage.model.compressed is not None:
        tokens = pool.compressed.sliding_tokens
        yield latents(stage, tokens, page, page, range(DRAFT_LAYERS), storage)
        return
    model = plan.draft or plan.model
    sliding_tokens = pool.sliding.sliding_tokens if pool.sliding else 0
    full_layers = range(drafts.total - drafts.sliding)
    sides = ((full_layers, pool.tokens, False), (range(drafts.sliding), sliding_tokens, True))
    for layer_ids, tokens, slides in sides:
        if layer_ids and tokens:
            size = (tokens * resolved.logical_ratio + page) * dcp - page
            own = draft_storage(resolved)
            yield draft_pool(own, model, layer_ids, size, slides, storage)


def ring_draft(plan: Plan, stage: Stage, storage: Storage) -> RowLatentPool:
    """DeepSeek-V4's draft layer in the rings of all request rows: bf16 for DSPARK whatever the target's."""
    compressed, resolved = stage.model.compressed, plan.resolved
    assert compressed is not None
    ring = ring_tokens(resolved, compressed.window)
    fp8 = resolved.request_ring == "fp8" and resolved.speculation.algorithm != "DSPARK"
    layers = [
        latent_rows(
            plan.rows * ring,
            nope_dim=compressed.qk_nope_head_dim,
            rope_dim=compressed.qk_rope_head_dim,
            fp8=fp8,
            storage=storage,
        )
        for _ in range(DRAFT_LAYERS)
    ]
    return row_latents(compressed, layers, ring, range(DRAFT_LAYERS), storage)


def draft_pool(
    resolved: Resolved,
    model: ModelSpec,
    layer_ids: Sequence[int],
    tokens: int,
    slides: bool,
    storage: Storage,
) -> KvPool:
    """K and V, or latents with index keys in every layer."""
    attention = model.sliding if slides and model.sliding is not None else model.attention
    if isinstance(attention, Mla):
        if model.indexer is not None:
            return dsa_pool(
                resolved, attention, model.indexer, tokens, layer_ids, layer_ids, 1, storage
            )
        kind = Fp4MlaPool if resolved.kv_cache_dtype == FP4 else MlaPool
        return mla_pool(kind, resolved, attention, tokens, layer_ids, storage)
    heads = kv_heads_per_rank(attention.num_kv_heads, block_draft_tp(resolved))
    return mha_pool(resolved, attention, heads, tokens, layer_ids, storage)
