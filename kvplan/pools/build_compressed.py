"""The pools of a planned DeepSeek-V4 stage: window, ratios, index keys and state rings."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvplan.pools.compressed import CompressedPool, RatioPool
from kvplan.pools.index_keys import IndexKeyPool
from kvplan.pools.packed_latent import PackedLatentPool
from kvplan.pools.state_ring import StateRing
from kvplan.pools.storage import Storage
from kvplan.sizing.compressed import ring_slots
from kvplan.sizing.plan import StagePlan
from kvplan.spec.model import Compressed
from kvplan.units import ceil_page

OVERLAP = {4: 2, 128: 1}  # groups that a token of a ratio counts in: ratio 4 overlaps


def compressed_pool(planned: StagePlan, storage: Storage) -> CompressedPool:
    """All pools of one stage, in pages of the full space."""
    stage, pools = planned.stage, planned.pool.compressed
    compressed, page_size = stage.model.compressed, stage.resolved.page_size
    assert pools is not None
    assert compressed is not None
    sizes = {4: pools.c4_tokens, 128: pools.c128_tokens}
    by_ratio = []
    for ratio, tokens in sizes.items():
        layer_ids = [layer for layer in stage.span if compressed.ratios[layer] == ratio]
        if layer_ids:
            by_ratio.append(ratio_pool(planned, ratio, tokens, layer_ids, storage))
    window = latents(compressed, pools.sliding_tokens, page_size, page_size, stage.span, storage)
    return CompressedPool(
        size=pools.full_tokens, page_size=page_size, window=window, by_ratio=by_ratio
    )


def latents(
    compressed: Compressed,
    tokens: int,
    page_size: int,
    padding_tokens: int,
    layer_ids: Sequence[int],
    storage: Storage,
) -> PackedLatentPool:
    """Packed latents in pages of page_size latents."""
    return PackedLatentPool(
        size=tokens,
        page_size=page_size,
        padding_tokens=padding_tokens,
        layer_ids=layer_ids,
        nope_dim=compressed.qk_nope_head_dim,
        rope_dim=compressed.qk_rope_head_dim,
        storage=storage,
    )


def ratio_pool(
    planned: StagePlan, ratio: int, tokens: int, layer_ids: Sequence[int], storage: Storage
) -> RatioPool:
    """Latents and rings of one ratio; ratio 4 has an indexer with keys and rings of its own."""
    stage, pools = planned.stage, planned.pool.compressed
    compressed, page_size = stage.model.compressed, stage.resolved.page_size
    assert pools is not None
    assert compressed is not None
    slots = pools.c4_state_slots if ratio == 4 else planned.pool.c128_state_slots
    ring = ring_slots(stage.resolved, ratio)

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

    in_page = page_size // ratio
    # a share of the tokens need not end with a page
    whole = ceil_page(tokens, in_page)
    latent = latents(compressed, whole, in_page, page_size, layer_ids, storage)
    state = rings("state", compressed.qk_nope_head_dim + compressed.qk_rope_head_dim)
    if ratio != 4:
        return RatioPool(ratio, latent, rings=(state,))
    keys = IndexKeyPool(
        size=pools.full_tokens // ratio,
        layer_ids=layer_ids,
        head_dim=compressed.index_head_dim,
        padding_tokens=page_size,
        storage=storage,
    )
    index_state = rings("index_state", compressed.index_head_dim)
    return RatioPool(ratio, latent, rings=(state, index_state), index_keys=keys)
