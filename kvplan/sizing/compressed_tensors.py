"""DeepSeek-V4's buffers: whole pages of latents per pool, index keys, and the state rings."""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.sizing.compressed import (
    latent_page_bytes,
    layer_counts,
    ring_slots,
    state_row_elems,
)
from kvplan.sizing.layout import index_key_bytes
from kvplan.sizing.plan import StagePlan
from kvplan.sizing.resolved import Resolved
from kvplan.sizing.tensor import TensorPlan
from kvplan.units import ceil_div, ceil_page


def compressed_tensors(planned: StagePlan) -> Iterator[TensorPlan]:
    """Latents of the window and of each ratio, and index keys beside ratio 4."""
    stage, pools = planned.stage, planned.pool.compressed
    compressed, page = stage.model.compressed, stage.resolved.page_size
    assert pools is not None
    assert compressed is not None
    counts = layer_counts(stage, compressed)
    if stage.resolved.request_ring is not None:
        yield from ring_latents(planned)
    sides = (
        ("sliding", len(stage.span), pools.sliding_tokens, 1),
        ("c4", counts[4], pools.c4_tokens, 4),
        ("c128", counts[128], pools.c128_tokens, 128),
    )
    for name, layers, tokens, ratio in sides:
        in_page = page // ratio
        row = latent_page_bytes(stage.resolved, compressed, in_page)
        shape = (ceil_div(tokens + page, in_page), row)
        if layers and stage.resolved.request_ring is None:
            yield TensorPlan(name, "latent", layers, shape, latent_dtype(stage.resolved))
    if counts[4]:
        in_page = page // 4
        rows = ceil_div(pools.full_tokens // 4 + page, in_page)
        row = in_page * index_key_bytes(compressed.index_head_dim, 1)
        yield TensorPlan("c4", "index_key", counts[4], (rows, row), "uint8")


def latent_dtype(resolved: Resolved) -> str:
    """Bytes of packed rows, or fp8 of uniform ones."""
    return "float8_e4m3fn" if resolved.uniform_latents else "uint8"


def ring_latents(planned: StagePlan) -> Iterator[TensorPlan]:
    """A buffer a layer: the rings of all request rows, then the latents of its ratio."""
    from kvplan.sizing.request_ring import FP8_ROW, layer_rows

    stage, pools = planned.stage, planned.pool.compressed
    compressed, requests = stage.model.compressed, planned.pool.requests.max_running
    assert pools is not None
    assert compressed is not None
    for ratio, layers in sorted(layer_counts(stage, compressed).items()):
        rows = layer_rows(stage, pools, requests, ratio)
        name = f"c{ratio}" if ratio else "sliding"
        if stage.resolved.request_ring == "bf16":
            width = state_row_elems(compressed)
            yield TensorPlan(name, "latent", layers, (rows, width), "bfloat16")
            continue
        yield TensorPlan(name, "latent", layers, (rows, FP8_ROW), "float8_e4m3fn")
        rope = compressed.qk_rope_head_dim
        yield TensorPlan(name, "rope", layers, (rows, rope), "bfloat16")


def ring_tensors(planned: StagePlan) -> Iterator[TensorPlan]:
    """Compression state: a ring per sliding page for ratio 4, one per request row for 128."""
    stage, pools = planned.stage, planned.pool.compressed
    compressed = stage.model.compressed
    if pools is None or compressed is None:
        return
    counts, elems = layer_counts(stage, compressed), state_row_elems(compressed)
    c4, c128 = pools.c4_state_slots, planned.pool.c128_state_slots
    rings = (
        ("c4", "state", 4, c4, 4 * elems),
        ("c4", "index_state", 4, c4, 4 * compressed.index_head_dim),
        ("c128", "state", 128, c128, 2 * elems),
    )
    for pool, name, ratio, slots, width in rings:
        rows = ceil_page(slots + ring_slots(stage.resolved, ratio) + 1, ratio)
        if counts[ratio]:
            yield TensorPlan(pool, name, counts[ratio], (rows, width), "float32")
