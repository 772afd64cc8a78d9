"""DeepSeek-V4 with a ring a request: a window of every layer in each request row, no sliding pool."""

from __future__ import annotations

import msgspec

from kvplan.sizing.capacities import CompressedPools
from kvplan.sizing.compressed import (
    STATE_BYTES,
    draft_inflation,
    layer_counts,
    request_slots,
    ring_slots,
    state_row_elems,
)
from kvplan.sizing.resolved import Resolved
from kvplan.sizing.stage import Stage
from kvplan.spec.model import Compressed
from kvplan.units import ceil_page

BF16 = 2
FP8_ROW = 512  # bytes of an fp8 row: the nope part and its scales
SCALE_TILE = 64  # values that share one power-of-two scale
SCALE_COPIES = 2  # each tile's scale is stored twice
LATENTS_OF_BLOCK = {0: 0, 4: 32, 128: 1}  # latents for 128 full tokens, by ratio


def row_bytes(resolved: Resolved, compressed: Compressed, *, fp8: bool | None = None) -> int:
    """One latent: all of it in bf16, or fp8 beside a bf16 rope part."""
    fp8 = resolved.request_ring == "fp8" if fp8 is None else fp8
    if fp8:
        return FP8_ROW + compressed.qk_rope_head_dim * BF16
    return state_row_elems(compressed) * BF16


def fp8_row_used(nope_dim: int) -> int:
    """Bytes of an fp8 row that are read: values, then the scales of their tiles."""
    return nope_dim + SCALE_COPIES * nope_dim // SCALE_TILE


def ring_tokens(resolved: Resolved, window: int) -> int:
    """Slots of one request's ring: its window, and what a verify step writes ahead."""
    spec = resolved.speculation
    return window + ((spec.num_draft_tokens or 1) - 1 if spec.algorithm else 0)


def full_token_bytes(stage: Stage, compressed: Compressed, ratio: int) -> float:
    """What one full token adds to one layer of a ratio; rows have no page to fill."""
    latent = row_bytes(stage.resolved, compressed) / ratio
    if ratio != 4:
        return latent
    return 1 / 4 * row_bytes(stage.resolved, compressed) + 1 / 4 * (
        compressed.index_head_dim + compressed.index_head_dim // 128 * 4
    )


def fixed_bytes(stage: Stage, max_running: int) -> int:
    """Rings of the window in every layer, and c4 state rings, of all request rows."""
    compressed, resolved = stage.model.compressed, stage.resolved
    assert compressed is not None
    rows = request_slots(resolved, max_running)
    window = rows * ring_tokens(resolved, compressed.window)
    rings = window * row_bytes(resolved, compressed) * len(stage.span)
    if resolved.speculation.algorithm == "DSPARK" and resolved.request_ring == "fp8":
        rings += window * row_bytes(resolved, compressed, fp8=False)
    else:
        rings = int(rings * draft_inflation(stage))
    return rings + c4_state_bytes(stage, compressed, max_running)


def c4_state_bytes(stage: Stage, compressed: Compressed, max_running: int) -> int:
    """c4 compression state by request row instead of by sliding page."""
    layers = layer_counts(stage, compressed)[4]
    ring = ring_slots(stage.resolved, 4)
    rows = request_slots(stage.resolved, max_running) * ring
    elems = 4 * (state_row_elems(compressed) + compressed.index_head_dim)
    return ceil_page(rows + ring + 1, 4) * elems * STATE_BYTES * layers


def with_requests(stage: Stage, pools: CompressedPools, max_running: int) -> CompressedPools:
    """The pools once the request rows are known: rings in whole pages, the padding row aside."""
    compressed, resolved = stage.model.compressed, stage.resolved
    assert compressed is not None
    rows = request_slots(resolved, max_running)
    cost = ceil_page(ring_tokens(resolved, compressed.window), resolved.page_size)
    has_c4 = layer_counts(stage, compressed)[4]
    return msgspec.structs.replace(
        pools,
        sliding_tokens=(rows - 1) * cost,
        c4_state_slots=rows * ring_slots(resolved, 4) if has_c4 else 0,
    )


def layer_rows(stage: Stage, pools: CompressedPools, max_running: int, ratio: int) -> int:
    """Rows of one layer's buffer: the rings of all request rows, then its latents and a page."""
    compressed, resolved = stage.model.compressed, stage.resolved
    assert compressed is not None
    rings = request_slots(resolved, max_running) * ring_tokens(resolved, compressed.window)
    padding = resolved.page_size // ratio if ratio else 0
    return rings + pools.c128_tokens * LATENTS_OF_BLOCK[ratio] + padding
