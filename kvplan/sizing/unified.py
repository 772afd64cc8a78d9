"""Unified memory: one byte buffer for the full pool and, from its other end, sliding KV or state."""

from __future__ import annotations

import math
from bisect import bisect_right

from kvplan.errors import CombinationError
from kvplan.sizing.budget import Budget
from kvplan.sizing.capacities import Split, TwoPools, UnifiedBuffer
from kvplan.sizing.layout import ELEMENT_BYTES
from kvplan.sizing.shapes import kv_heads_per_rank, state_bytes_per_layer
from kvplan.sizing.shortage import Shortage
from kvplan.sizing.sliding import sliding_cell
from kvplan.sizing.stage import Stage
from kvplan.spec.model import Mla
from kvplan.units import GIB, ceil_div, ceil_page, floor_page

ENTRY_ALIGN = 32  # bytes of one token over all layers are padded to it
ROW_ALIGN = 16  # rows that it does not divide have no place in the buffer
BUDGET_ALIGN = 4096
STATES_OF_ONE = 3  # state slots that one request alone may hold: running, and two being cached


def most_full_tokens(
    budget_bytes: int, page: int, *, full_bytes: int, sliding_bytes: int, ratio: float
) -> int:
    """The most full tokens whose share of sliding ones fits beside them, in whole pages."""

    def taken(full_pages: int) -> int:
        full = full_pages * page
        return full * full_bytes + floor_page(int(full * ratio), page) * sliding_bytes

    most = budget_bytes // full_bytes // page
    return max(0, bisect_right(range(most + 1), budget_bytes, key=taken) - 1) * page


def unified_buffer(
    stage: Stage, budget: Budget, split: Split, *, capped: bool
) -> UnifiedBuffer | Shortage:
    """The buffer of one stage: its whole budget, or what its tokens take under a cap.

    CombinationError for layers and rows that it has no place for.
    """
    slides = isinstance(split, TwoPools)
    if isinstance(split, TwoPools) and not split.full_tokens:
        raise CombinationError("unified memory has no place for a stage whose layers all slide")
    full_entry, other_entry = entries(stage, slides=slides)
    total = budget.num_bytes // BUDGET_ALIGN * BUDGET_ALIGN
    if capped and isinstance(split, TwoPools):
        cell = sliding_cell(stage)
        total = split.full_tokens * cell.full_bytes + split.sliding_tokens * cell.sliding_bytes
    elif capped and isinstance(split, int):
        total = split * full_entry
    if not slides:
        assert budget.state is not None
        total += budget.state.slots * other_entry
    return laid_out(stage, total, full_entry, other_entry, slides=slides)


def entries(stage: Stage, *, slides: bool) -> tuple[int, int]:
    """Bytes of a token on the full side, and of a token or a state slot on the other."""
    layers, model, resolved = stage.layers, stage.model, stage.resolved
    full = token_entry(stage, len(layers.full), slides=False)
    if slides:
        return full, token_entry(stage, len(layers.sliding), slides=True)
    assert model.linear is not None
    per_layer = state_bytes_per_layer(
        model.linear, resolved.widths.attn_tp, resolved.mamba_ssm_dtype
    )
    if not layers.full or not layers.linear:
        raise CombinationError(
            "unified memory needs full and linear layers in every pipeline stage",
            hint="use fewer stages",
        )
    return full, per_layer * len(layers.linear)


def dense_rows(stage: Stage, *, slides: bool) -> dict[str, tuple[int, ...]]:
    """What one layer of a side keeps of a token, in the order of the entry."""
    attention = stage.model.sliding if slides else stage.model.attention
    assert attention is not None
    if isinstance(attention, Mla):
        return {"latent": (1, attention.kv_lora_rank + attention.qk_rope_head_dim)}
    heads = stage.kv_heads
    if slides:
        heads = kv_heads_per_rank(attention.num_kv_heads, stage.resolved.widths.attn_tp)
    return {"k": (heads, attention.head_dim), "v": (heads, attention.v_head_dim)}


def dense_strides(row: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of such a row, in elements."""
    return tuple(math.prod(row[axis + 1 :]) for axis in range(len(row)))


def token_entry(stage: Stage, layers: int, *, slides: bool) -> int:
    """Rows of one token over some layers, padded to a whole entry."""
    element = ELEMENT_BYTES[stage.resolved.kv_cache_dtype]
    rows = [math.prod(row) * element for row in dense_rows(stage, slides=slides).values()]
    for row in rows:
        if row % ROW_ALIGN:
            raise CombinationError(
                f"unified memory takes rows in multiples of {ROW_ALIGN} bytes, not {row}",
                hint="leave enable_unified_memory out, or change tp_size",
            )
    return ceil_page(sum(rows) * layers, ENTRY_ALIGN)


def laid_out(
    stage: Stage, total: int, full_entry: int, other_entry: int, *, slides: bool
) -> UnifiedBuffer | Shortage:
    """Both sides in an empty buffer: padding at the low end, full pages down from the top."""
    page = stage.resolved.page_size
    other_page = page if slides else 1
    reserved = max(page * full_entry, other_page * other_entry)
    least = reserved + least_other(stage, other_entry, slides=slides)
    if total < least:
        return too_small(total, least)
    full_pages, full_lost = grid(total, reserved, full_entry, page)
    other_pages, other_lost = grid(total, reserved, other_entry, other_page)
    gap = full_pages * full_entry * page - other_lost * other_entry * other_page
    full = min(gap // (full_entry * page), full_pages - full_lost) * page
    other = min(gap // (other_entry * other_page), other_pages - other_lost) * other_page
    if slides:
        other = min(other, (full_pages - full_lost) * page)
    return UnifiedBuffer(
        total_bytes=total,
        page_size=page,
        full_entry=full_entry,
        other_entry=other_entry,
        slides=slides,
        reserved_bytes=reserved,
        full_capacity=full,
        other_capacity=other,
    )


def grid(total: int, reserved: int, entry: int, page: int) -> tuple[int, int]:
    """Pages of one side over the whole buffer, and the first ones that padding covers."""
    return total // entry // page, ceil_div(ceil_div(reserved, entry), page)


def least_other(stage: Stage, other_entry: int, *, slides: bool) -> int:
    """What one request alone needs on the other side: a window and a page, or its states."""
    if not slides:
        return STATES_OF_ONE * other_entry
    sliding, resolved = stage.model.sliding, stage.resolved
    assert sliding is not None
    window = min(resolved.context_length, sliding.window + resolved.page_size)
    return window * other_entry


def too_small(total: int, least: int) -> Shortage:
    return Shortage(
        what="tokens",
        problem=(
            f"a unified buffer of {total / GIB:.2f} GiB cannot hold one request:"
            f" that takes {least / GIB:.2f} GiB"
        ),
        have_bytes=total,
        need_bytes=least,
        raise_flags=("--mem-fraction-static",),
    )
