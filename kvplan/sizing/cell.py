"""Bytes of one token on one rank (`cell_size` in the engine) of models with one KV pool."""

from __future__ import annotations

import msgspec

from kvplan.sizing import layout
from kvplan.sizing.drafts import BLOCK_DRAFTS, PRICED_LIKE_EAGLE
from kvplan.sizing.resolved import Resolved
from kvplan.sizing.shapes import kv_heads_per_rank
from kvplan.sizing.stage import Stage
from kvplan.spec.model import Indexer, Mha, Mla


class CellTerm(msgspec.Struct, frozen=True):
    """One part of the bytes that a token takes."""

    name: str
    num_bytes: int | float
    formula: str


class Cell(msgspec.Struct, frozen=True):
    """All bytes that one more token takes on one rank."""

    num_bytes: int | float
    terms: tuple[CellTerm, ...]


def dense_cell(stage: Stage) -> Cell:
    """Target KV, index keys and draft KV of one token of one stage."""
    target = target_terms(stage)
    terms = (*target, *draft_terms(stage, target))
    return Cell(sum(term.num_bytes for term in terms), terms)


def target_terms(stage: Stage) -> tuple[CellTerm, ...]:
    """The target's own bytes a token: the latent or K and V, then index keys."""
    if stage.model.sparse is not None:
        return sparse_terms(stage)
    if isinstance(stage.model.attention, Mla):
        return mla_terms(stage, stage.model.attention)
    return (mha_term(stage, stage.model.attention),)


def mha_term(stage: Stage, attention: Mha) -> CellTerm:
    """K and V over the stage's layers, by recipe."""
    resolved, layers, heads = stage.resolved, stage.num_kv_layers, stage.kv_heads
    dims = attention.head_dim + attention.v_head_dim
    match resolved.kv_recipe:
        case "nvfp4":
            from kvplan.sizing.nvfp4 import nvfp4_layouts

            layouts = nvfp4_layouts(resolved)
            scales = layouts.linear + layouts.native
            num_bytes = layout.fp4_bytes(
                heads, attention.head_dim, layers, num_scale_layouts=scales
            )
            if layouts.workspace:
                num_bytes += heads * attention.head_dim * 2
            return CellTerm("KV", num_bytes, f"nvfp4, {scales} scale layouts")
        case "fp4_mx_block16":
            num_bytes = layout.fp4_block16_bytes(heads, attention.head_dim, layers)
            return CellTerm("KV", num_bytes, "FP4 with a scale byte per 16 elements")
    num_bytes = layout.mha_bytes(heads, dims, resolved.kv_cache_dtype) * layers
    formula = f"{heads} heads × ({attention.head_dim} + {attention.v_head_dim}) × {layers} layers × {resolved.kv_cache_dtype}"
    if resolved.kv_recipe == "mxfp8":
        num_bytes += layout.mxfp8_scale_bytes(heads, dims, layers)
        formula += ", a scale byte per 32 elements"
    return CellTerm("KV", num_bytes, formula)


def mla_terms(stage: Stage, attention: Mla) -> tuple[CellTerm, ...]:
    """The latent row of every layer, and index keys where the model has an indexer."""
    layers, indexer = stage.num_kv_layers, stage.model.indexer
    row = latent_bytes(stage, attention)
    latent = CellTerm("latent KV", row * layers, f"{row} B × {layers} layers")
    if indexer is None:
        return (latent,)
    key = layout.index_key_bytes(indexer.head_dim, indexer.kpool)
    owners, dcp = len(stage.layers.indexer), stage.resolved.widths.attn_dcp
    logical = stage.resolved.logical_ratio
    formula = f"{key} B × {owners} layers with an indexer × dcp {dcp}"
    if logical > 1:
        formula += f" × {logical} logical tokens"
    return latent, CellTerm("index keys", key * owners * dcp * logical, formula)


def latent_bytes(stage: Stage, attention: Mla) -> int:
    """One latent row; DSA packs fp8 e4m3 with scales unless its kernels read raw rows."""
    resolved = stage.resolved
    if packs_latents(resolved, stage.model.indexer):
        return layout.dsa_packed_bytes(attention.kv_lora_rank, attention.qk_rope_head_dim)
    return layout.mla_bytes(
        attention.kv_lora_rank, attention.qk_rope_head_dim, resolved.kv_cache_dtype
    )


def packs_latents(resolved: Resolved, indexer: Indexer | None) -> bool:
    """Whether latents are rows of fp8 with their scales: DSA in e4m3, unless read raw."""
    scaled = indexer is not None and resolved.kv_cache_dtype == "float8_e4m3fn"
    return scaled and not resolved.dsa_raw_layout


def sparse_terms(stage: Stage) -> tuple[CellTerm, ...]:
    """MiniMax sparse: K and V of all layers plus a single-head index of the sparse ones."""
    sparse, attention, resolved = stage.model.sparse, stage.model.attention, stage.resolved
    assert sparse is not None
    assert isinstance(attention, Mha)
    local = [layer for layer in sparse.sparse_layers if layer in stage.span]
    k_only = sum(layer in sparse.index_k_only_layers for layer in local)
    logical = resolved.logical_ratio  # only the sparse layers swap
    dense = sum(layer in stage.span for layer in sparse.dense_layers) * logical
    layers = len(local) + dense
    main = layout.mha_bytes(stage.kv_heads, 2 * attention.head_dim, resolved.kv_cache_dtype)
    element = layout.ELEMENT_BYTES[sparse_index_dtype(stage)]
    vectors = (2 * len(local) - k_only) * logical
    return (
        CellTerm("KV", main * layers, f"{main} B × {layers} layers"),
        CellTerm(
            "index keys",
            vectors * sparse.index_head_dim * element,
            f"{vectors} vectors × {sparse.index_head_dim} × {element} B",
        ),
    )


def sparse_index_dtype(stage: Stage) -> str:
    """Index keys keep the model's dtype unless the fp8 attention GEMMs of 10.0 read them."""
    resolved = stage.resolved
    fp8_gemms = (
        resolved.kv_cache_dtype == "float8_e4m3fn"
        and resolved.kv_recipe is None
        and resolved.attention_backend == "trtllm_mha"
        and resolved.gpu_sm is not None
        and resolved.gpu_sm // 10 == 10
    )
    return resolved.kv_cache_dtype if fp8_gemms else stage.model.dtype


def draft_terms(stage: Stage, target: tuple[CellTerm, ...]) -> tuple[CellTerm, ...]:
    """What the draft's own pool adds: drafts share the target's token budget."""
    algorithm = stage.resolved.speculation.algorithm
    if algorithm in BLOCK_DRAFTS:
        return block_draft_terms(stage)
    layers, drafts = stage.num_kv_layers, stage.draft_layers
    if algorithm not in PRICED_LIKE_EAGLE or drafts is None or not drafts.total or not layers:
        return ()
    if stage.model.indexer is not None:
        return dsa_draft_terms(stage, target[0].num_bytes, drafts.total)
    whole = sum(term.num_bytes for term in target)
    num_bytes = int(whole * drafts.total / layers) * stage.resolved.logical_ratio
    return (CellTerm("draft KV", num_bytes, f"{whole} B × {drafts.total} / {layers} layers"),)


def dsa_draft_terms(stage: Stage, latent: int | float, drafts: int) -> tuple[CellTerm, ...]:
    """Latent and index keys scale apart, and every draft layer owns an indexer."""
    indexer, dcp, layers = stage.model.indexer, stage.resolved.widths.attn_dcp, stage.num_kv_layers
    assert indexer is not None
    key = layout.index_key_bytes(indexer.head_dim, indexer.kpool)
    # a draft holds the tokens of all ranks, or of the host side, at their own slots
    spread = dcp * stage.resolved.logical_ratio
    return (
        CellTerm(
            "draft KV",
            int(latent * drafts / layers) * spread,
            f"{latent} B × {drafts} / {layers} layers × {spread} token spaces",
        ),
        CellTerm(
            "draft index keys",
            key * drafts * spread,
            f"{key} B × {drafts} layers × {spread} token spaces",
        ),
    )


def block_draft_terms(stage: Stage) -> tuple[CellTerm, ...]:
    """DFLASH and DSPARK: the draft's own geometry, replicated over the dcp ranks."""
    num_bytes = block_draft_bytes(stage)
    if not num_bytes or not stage.num_kv_layers:
        return ()
    return (CellTerm("draft KV", num_bytes, f"{stage.draft.name if stage.draft else ''} × dcp"),)


def block_draft_bytes(stage: Stage) -> int:
    """Bytes a token of a DFLASH or DSPARK draft's pool; 0 without one."""
    draft, resolved = stage.draft, stage.resolved
    if resolved.speculation.algorithm not in BLOCK_DRAFTS or draft is None:
        return 0
    attention = draft.attention
    assert isinstance(attention, Mha)
    heads = kv_heads_per_rank(attention.num_kv_heads, block_draft_tp(resolved))
    dims = attention.head_dim + attention.v_head_dim
    kv_dtype = resolved.draft_kv_cache_dtype or resolved.kv_cache_dtype
    per_layer = layout.mha_bytes(heads, dims, kv_dtype)
    return per_layer * draft.num_layers * resolved.widths.attn_dcp


def block_draft_tp(resolved: Resolved) -> int:
    """Ranks over which a draft's heads shard: DFLASH leaves context parallelism to the target."""
    widths = resolved.widths
    alone = resolved.speculation.algorithm == "DFLASH" and widths.attn_dp == 1
    return widths.tp if alone else widths.attn_tp
