"""The pools of a planned DeepSeek-V4 stage: window, ratios, index keys and state rings."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvplan.pools.compressed import CompressedPool, RatioPool
from kvplan.pools.index_keys import IndexKeyPool
from kvplan.pools.leaf import LeafPool
from kvplan.pools.packed_latent import PackedLatentPool
from kvplan.pools.request_ring import RequestRingPool
from kvplan.pools.row_latent import LatentRows, RowLatentPool, latent_rows
from kvplan.pools.state_ring import StateRing
from kvplan.pools.storage import Storage
from kvplan.pools.uniform_latent import UniformLatentPool
from kvplan.sizing.compressed import request_slots, ring_slots
from kvplan.sizing.plan import StagePlan
from kvplan.sizing.request_ring import layer_rows, ring_tokens
from kvplan.sizing.stage import Stage
from kvplan.spec.model import Compressed
from kvplan.units import ceil_page

OVERLAP = {4: 2, 128: 1}  # groups that a token of a ratio counts in: ratio 4 overlaps


def compressed_pool(planned: StagePlan, storage: Storage) -> CompressedPool:
    """All pools of one stage, in pages of the full space."""
    stage, pools = planned.stage, planned.pool.compressed
    compressed, resolved = stage.model.compressed, stage.resolved
    assert pools is not None
    assert compressed is not None
    if resolved.request_ring is not None:
        return ring_pool(planned, storage)
    page_size = resolved.page_size
    by_ratio = []
    for ratio, tokens in ((4, pools.c4_tokens), (128, pools.c128_tokens)):
        layer_ids = layers_of(stage, ratio)
        if layer_ids:
            in_page = page_size // ratio
            # a share of the tokens need not end with a page
            whole = ceil_page(tokens, in_page)
            latent = latents(stage, whole, in_page, page_size, layer_ids, storage)
            by_ratio.append(ratio_pool(planned, ratio, latent, storage))
    window = latents(stage, pools.sliding_tokens, page_size, page_size, stage.span, storage)
    return CompressedPool(
        size=pools.full_tokens, page_size=page_size, window=window, by_ratio=by_ratio
    )


def ring_pool(planned: StagePlan, storage: Storage) -> RequestRingPool:
    """A buffer a layer, whose rows the window and the layer's ratio share."""
    stage, pools = planned.stage, planned.pool.compressed
    compressed, resolved = stage.model.compressed, stage.resolved
    assert pools is not None
    assert compressed is not None
    requests, page_size = planned.pool.requests.max_running, resolved.page_size
    layers = {
        layer: latent_rows(
            layer_rows(stage, pools, requests, compressed.ratios[layer]),
            nope_dim=compressed.qk_nope_head_dim,
            rope_dim=compressed.qk_rope_head_dim,
            fp8=resolved.request_ring == "fp8",
            storage=storage,
        )
        for layer in stage.span
    }
    ring = ring_tokens(resolved, compressed.window)
    rings = request_slots(resolved, requests) * ring

    def rows(layer_ids: Sequence[int], first: int, end: int | None, page: int) -> RowLatentPool:
        parts = [layers[layer].part(first, end) for layer in layer_ids]
        return row_latents(compressed, parts, page, layer_ids, storage)

    window = rows(stage.span, 0, rings, ring)
    by_ratio = []
    for ratio in (4, 128):
        layer_ids = layers_of(stage, ratio)
        if layer_ids:
            latent = rows(layer_ids, rings, None, page_size // ratio)
            by_ratio.append(ratio_pool(planned, ratio, latent, storage))
    return RequestRingPool(
        list(layers.values()),
        size=pools.full_tokens,
        page_size=page_size,
        window=window,
        by_ratio=by_ratio,
    )


def layers_of(stage: Stage, ratio: int) -> list[int]:
    """The stage's layers of one ratio."""
    assert stage.model.compressed is not None
    return [layer for layer in stage.span if stage.model.compressed.ratios[layer] == ratio]


def row_latents(
    compressed: Compressed,
    layers: Sequence[LatentRows],
    page_size: int,
    layer_ids: Sequence[int],
    storage: Storage,
) -> RowLatentPool:
    """A pool over rows that are there."""
    return RowLatentPool(
        layers,
        page_size=page_size,
        layer_ids=layer_ids,
        nope_dim=compressed.qk_nope_head_dim,
        rope_dim=compressed.qk_rope_head_dim,
        storage=storage,
    )


def latents(
    stage: Stage,
    tokens: int,
    page_size: int,
    padding_tokens: int,
    layer_ids: Sequence[int],
    storage: Storage,
) -> LeafPool:
    """Latents in pages of page_size latents: packed with their scales, or uniform."""
    compressed = stage.model.compressed
    assert compressed is not None
    kind = UniformLatentPool if stage.resolved.uniform_latents else PackedLatentPool
    return kind(
        size=tokens,
        page_size=page_size,
        padding_tokens=padding_tokens,
        layer_ids=layer_ids,
        nope_dim=compressed.qk_nope_head_dim,
        rope_dim=compressed.qk_rope_head_dim,
        storage=storage,
    )


def ratio_pool(planned: StagePlan, ratio: int, latent: LeafPool, storage: Storage) -> RatioPool:
    """Latents and rings of one ratio; ratio 4 has an indexer with keys and rings of its own."""
    stage, pools = planned.stage, planned.pool.compressed
    compressed = stage.model.compressed
    assert pools is not None
    assert compressed is not None
    slots = pools.c4_state_slots if ratio == 4 else planned.pool.c128_state_slots
    ring, layer_ids = ring_slots(stage.resolved, ratio), latent.layer_ids

    def rings(name: str, width: int) -> StateRing:
        return StateRing(
            name=name,
            slots=slots,
            ring=ring,
            ratio=ratio,
            width=OVERLAP[ratio] * width,
            layer_ids=layer_ids,
            dtype=torch.float32,
            storage=storage,
        )

    state = rings("state", compressed.qk_nope_head_dim + compressed.qk_rope_head_dim)
    if ratio != 4:
        return RatioPool(ratio, latent, rings=(state,))
    keys = IndexKeyPool(
        size=pools.full_tokens // ratio,
        layer_ids=layer_ids,
        head_dim=compressed.index_head_dim,
        padding_tokens=stage.resolved.page_size,
        storage=storage,
    )
    index_state = rings("index_state", compressed.index_head_dim)
    return RatioPool(ratio, latent, rings=(state, index_state), index_keys=keys)
