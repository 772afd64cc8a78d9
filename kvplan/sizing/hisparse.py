"""HiSparse: the host side of its tokens, and what each request row keeps on the device for it."""

from __future__ import annotations

import msgspec

from kvplan.sizing.capacities import HostPool
from kvplan.sizing.cell import target_terms
from kvplan.sizing.compressed import latent_page_bytes, layer_counts
from kvplan.sizing.layout import mha_bytes
from kvplan.sizing.plan import Plan, StagePlan
from kvplan.sizing.pool import StagePool
from kvplan.sizing.resolved import Hisparse
from kvplan.sizing.stage import Stage
from kvplan.spec.model import Mha
from kvplan.units import ceil_div, ceil_page

SWAPPED_RATIO = 4  # DeepSeek-V4 swaps the latents of its c4 layers
INT64, INT32, INT16 = 8, 4, 2
LEAST_SCRATCH = 1024  # slots of one request that a verify step swaps into
COUNTERS, METADATA = 4, 5  # of a request, and of each swapped token


class SwapShape(msgspec.Struct, frozen=True):
    """What the swap of one stage works on."""

    layers: int  # whose KV lies on the host
    page_size: int  # of the device side
    compress_ratio: int  # full tokens for one swapped one


def swap_shape(stage: Stage) -> SwapShape:
    """DSA swaps all layers, MiniMax its sparse ones, DeepSeek-V4 its c4 layers."""
    page, model = stage.resolved.page_size, stage.model
    if model.compressed is not None:
        layers = layer_counts(stage, model.compressed)[SWAPPED_RATIO]
        return SwapShape(layers, page // SWAPPED_RATIO, SWAPPED_RATIO)
    if model.sparse is not None:
        local = sum(layer in stage.span for layer in model.sparse.sparse_layers)
        return SwapShape(local, page, 1)
    return SwapShape(stage.num_kv_layers, page, 1)


def host_side(stage: Stage, pool: StagePool) -> tuple[HostPool, ...]:
    """The host pool: every logical token of the layers that swap, and a padding page."""
    shape = swap_shape(stage)
    page = shape.page_size
    if pool.compressed is not None and stage.model.compressed is not None:
        pages = ceil_div(pool.compressed.full_tokens // SWAPPED_RATIO, page)
        row = latent_page_bytes(stage.resolved, stage.model.compressed, page) // page
        row *= shape.layers
        return (HostPool("kv", pages * page, page, row),)
    pages = pool.tokens * stage.resolved.logical_ratio // page + 1
    return (HostPool("kv", pages * page, page, swapped_token_bytes(stage, shape)),)


def swapped_token_bytes(stage: Stage, shape: SwapShape) -> int:
    """Bytes of one token over the layers that swap."""
    if stage.model.sparse is None:
        return int(target_terms(stage)[0].num_bytes)
    attention = stage.model.attention
    assert isinstance(attention, Mha)
    kv_dtype = stage.resolved.kv_cache_dtype
    return mha_bytes(stage.kv_heads, 2 * attention.head_dim, kv_dtype) * shape.layers


def device_tokens(stage: Stage, context_tokens: int) -> int:
    """Device slots of one decoding request: its buffer and a page, or all of a short context."""
    settings = stage.resolved.hisparse
    assert settings is not None
    shape = swap_shape(stage)
    buffer = settings.device_buffer_tokens + shape.page_size
    if shape.compress_ratio > 1:
        return buffer
    return min(buffer, ceil_page(context_tokens, shape.page_size))


def buffer_bytes(plan: Plan, planned: StagePlan) -> int:
    """What the swap keeps on the device beside the pools, for every request row."""
    stage, settings = planned.stage, plan.resolved.hisparse
    assert settings is not None
    shape, rows = swap_shape(stage), plan.rows
    buffer, top_k = settings.device_buffer_tokens, settings.top_k
    padded = buffer + shape.page_size
    positions = ceil_div(plan.reserves.row_width, shape.compress_ratio) + shape.page_size
    output = buffer if stage.model.sparse is not None else top_k
    a_row = INT64 * (padded + positions) + INT32 * (output + top_k)
    a_layer = rows * (2 * INT32 * padded + INT16 * buffer)
    once = (INT16 + INT32) * buffer + INT32
    drafts = plan.resolved.speculation.num_draft_tokens or 0
    if drafts:
        once += speculative_bytes(settings, shape, rows, drafts)
    if plan.model.indexer is not None and plan.model.indexer.shared_topk_layers:
        planned_misses = top_k * max(1, drafts)
        a_row += (INT64 + INT32) * planned_misses + INT32
    return rows * a_row + shape.layers * a_layer + once


def speculative_bytes(settings: Hisparse, shape: SwapShape, rows: int, drafts: int) -> int:
    """Index, policy and scratch of a verify step's swap."""
    buffer = settings.device_buffer_tokens
    swapped = drafts * settings.top_k
    scratch = min(swapped, max(LEAST_SCRATCH, swapped - buffer))
    buckets = 1 << max(1, (2 * buffer - 1).bit_length())
    metadata = max(COUNTERS * rows, METADATA * swapped)
    a_layer = INT64 * rows * 2 * buckets + INT32 * ((rows + 1) * buffer + rows * scratch)
    once = INT32 * ((rows + 1) * metadata + rows * swapped) + 2 * INT64 * buffer
    return shape.layers * a_layer + once


def logical_entries(planned: StagePlan) -> int:
    """Entries of the table from logical to device slots, its sentinel included."""
    stage, pool = planned.stage, planned.pool
    shape = swap_shape(stage)
    if pool.compressed is not None:
        logical = pool.compressed.c128_tokens * (128 // SWAPPED_RATIO)
    else:
        logical = pool.tokens * stage.resolved.logical_ratio
    return logical + shape.page_size + 1


def device_pages(planned: StagePlan) -> int:
    """Pages in the free list of the device side."""
    stage, pool = planned.stage, planned.pool
    tokens = pool.tokens if pool.compressed is None else pool.compressed.c4_tokens
    return tokens // swap_shape(stage).page_size
