"""Full and sliding pools that share one budget: by ratio, by request cap, or sliding alone."""

from __future__ import annotations

import msgspec

from kvplan.sizing import layout
from kvplan.sizing.capacities import TwoPools
from kvplan.sizing.cell import Cell, CellTerm, block_draft_bytes
from kvplan.sizing.drafts import PRICED_LIKE_EAGLE, DraftLayers
from kvplan.sizing.reserves import alloc_len_per_decode, old_alloc_len_per_decode
from kvplan.sizing.resolved import Resolved
from kvplan.sizing.shapes import kv_heads_per_rank
from kvplan.sizing.shortage import Shortage
from kvplan.sizing.stage import Stage
from kvplan.spec.model import Mha, Sliding
from kvplan.units import GIB, ceil_page, floor_page

EVICTION_INTERVAL = 128  # SGLANG_SWA_EVICTION_INTERVAL: tokens between two releases


class SlidingCell(msgspec.Struct, frozen=True):
    """Bytes of one token on each side; draft layers count on the side they live on."""

    full_bytes: int  # full layers, and drafts with full KV
    sliding_bytes: int  # sliding layers, and drafts that slide
    draft_bytes: int  # drafts of another geometry, as long as the full pool
    full_layers: int
    ratio: float

    @property
    def fixed_bytes(self) -> int:
        """Bytes of a full-side token when the sliding pool is sized apart."""
        return self.full_bytes + self.draft_bytes

    @property
    def num_bytes(self) -> int | float:
        """Bytes of one token of max_total_num_tokens."""
        if not self.full_layers:
            return self.full_bytes + self.sliding_bytes + self.draft_bytes
        return self.full_bytes + self.ratio * self.sliding_bytes + self.draft_bytes

    def cell(self) -> Cell:
        """The same as named terms."""
        share = self.ratio if self.full_layers else 1
        terms = [
            CellTerm("full KV", self.full_bytes, "full layers"),
            CellTerm("sliding KV", share * self.sliding_bytes, f"{share} × {self.sliding_bytes} B"),
        ]
        if self.draft_bytes:
            terms.append(CellTerm("draft KV", self.draft_bytes, "the draft's own geometry"))
        return Cell(self.num_bytes, tuple(terms))


def sliding_cell(stage: Stage) -> SlidingCell:
    """Bytes of one token on the full and on the sliding side of one stage."""
    sliding, resolved = stage.model.sliding, stage.resolved
    assert sliding is not None
    full_layer, sliding_layer = layer_bytes(stage, sliding)
    drafts = eagle_drafts(stage)
    slide = min(max(drafts.sliding, 0), drafts.total - drafts.banded)
    full = drafts.total - drafts.banded - slide
    return SlidingCell(
        full_bytes=full_layer * (len(stage.layers.full) + full),
        sliding_bytes=sliding_layer * (len(stage.layers.sliding) + slide),
        draft_bytes=sliding_layer * drafts.banded + block_draft_bytes(stage),
        full_layers=len(stage.layers.full),
        ratio=resolved.swa_full_tokens_ratio,
    )


def layer_bytes(stage: Stage, sliding: Sliding) -> tuple[int, int]:
    """Bytes of one token in one full and in one sliding layer; FP4 counts a byte an element."""
    attention, resolved = stage.model.attention, stage.resolved
    assert isinstance(attention, Mha)
    attn_tp = resolved.widths.attn_tp
    sides = (
        (attention.num_kv_heads, attention.head_dim + attention.v_head_dim),
        (sliding.num_kv_heads, sliding.head_dim + sliding.v_head_dim),
    )
    full, slide = (
        side_bytes(kv_heads_per_rank(heads, attn_tp), dims, resolved) for heads, dims in sides
    )
    return full, slide


def side_bytes(heads: int, dims: int, resolved: Resolved) -> int:
    """K and V of one token in one layer, with MXFP8's scales."""
    num_bytes = layout.mha_bytes(heads, dims, resolved.kv_cache_dtype)
    if resolved.kv_recipe == "mxfp8":
        num_bytes += layout.mxfp8_scale_bytes(heads, dims, 1)
    return num_bytes


def eagle_drafts(stage: Stage) -> DraftLayers:
    """Draft layers of EAGLE and its kin, which share the target's geometry."""
    drafts = stage.draft_layers
    if drafts is None or stage.resolved.speculation.algorithm not in PRICED_LIKE_EAGLE:
        return DraftLayers(total=0)
    return drafts


def has_request_cap(stage: Stage) -> bool:
    """Radix cache off, running requests given and prefill chunked: sized by the worst case."""
    resolved = stage.resolved
    chunked = resolved.chunked_prefill_size > 0 or resolved.disaggregation_mode == "decode"
    return (
        not resolved.radix_cache
        and resolved.max_running_requests is not None
        and chunked
        and bool(stage.layers.full)
    )


def request_cap(resolved: Resolved, window: int) -> int:
    """Sliding slots that the scheduler holds at most for the running requests and chunks."""
    page = resolved.page_size
    assert resolved.max_running_requests is not None
    requests = max(1, resolved.max_running_requests // resolved.widths.attn_dp)
    running = most_sliding(resolved, window) * requests
    if resolved.disaggregation_mode == "decode":
        return running + (window + page) * resolved.decode_extra_slots
    chunks_in_flight = 2 if resolved.overlap_schedule else 1
    return running + chunks_in_flight * resolved.chunked_prefill_size + page


def most_sliding(resolved: Resolved, window: int) -> int:
    """Sliding slots of one running request at its worst, just before its old pages are released."""
    page, spec = resolved.page_size, resolved.speculation
    trailing = window + EVICTION_INTERVAL * (spec.num_draft_tokens or 1) + page
    if spec.algorithm is None:
        return trailing + page
    if resolved.overlap_schedule:
        return trailing + 2 * alloc_len_per_decode(resolved)
    return trailing + old_alloc_len_per_decode(resolved)


def stage_cell(stage: Stage) -> Cell:
    """Bytes of one token of max_total_num_tokens, as named terms."""
    return sliding_cell(stage).cell()


def split_budget(stage: Stage, budget_bytes: int) -> TwoPools | Shortage:
    """Both pools from the budget."""
    cell = sliding_cell(stage)
    if has_request_cap(stage):
        return size_by_cap(stage, cell, budget_bytes)
    if stage.resolved.unified_memory and cell.full_layers:
        from kvplan.sizing.unified import most_full_tokens

        tokens = most_full_tokens(
            budget_bytes,
            stage.resolved.page_size,
            full_bytes=cell.full_bytes,
            sliding_bytes=cell.sliding_bytes,
            ratio=cell.ratio,
        )
        return split_tokens(stage, tokens)
    return split_tokens(stage, int(budget_bytes // cell.num_bytes))


def size_by_cap(stage: Stage, cell: SlidingCell, budget_bytes: int) -> TwoPools | Shortage:
    page, sliding = stage.resolved.page_size, stage.model.sliding
    assert sliding is not None
    slide = ceil_page(request_cap(stage.resolved, sliding.window), page)
    fixed = slide * cell.sliding_bytes
    full = floor_page(int((budget_bytes - fixed) // cell.fixed_bytes), page)
    if full <= 0:
        return Shortage(
            what="sliding pool",
            problem=(
                f"the sliding pool of {slide} tokens takes {fixed / GIB:.2f} GiB of"
                f" {budget_bytes / GIB:.2f} GiB and leaves no full pool"
            ),
            have_bytes=budget_bytes,
            need_bytes=fixed + page * cell.fixed_bytes,
            raise_flags=("--mem-fraction-static",),
            lower_flags=("--max-running-requests",),
        )
    return TwoPools(full, slide, "request cap")


def resize(stage: Stage, tokens: int) -> TwoPools | Shortage:
    """Both pools once a user cap or another stage bounds the tokens."""
    if not has_request_cap(stage):
        return split_tokens(stage, tokens)
    page, sliding = stage.resolved.page_size, stage.model.sliding
    assert sliding is not None
    slide = ceil_page(request_cap(stage.resolved, sliding.window), page)
    return TwoPools(floor_page(tokens, page), min(slide, tokens), "request cap")


def split_tokens(stage: Stage, tokens: int) -> TwoPools | Shortage:
    """Ratio mode, or one sliding pool where no layer is full."""
    page, sliding = stage.resolved.page_size, stage.model.sliding
    assert sliding is not None
    full = floor_page(tokens, page)
    if not stage.layers.full:
        return TwoPools(0, full, "all sliding")
    slide = floor_page(int(full * stage.resolved.swa_full_tokens_ratio), page)
    if sliding.window + page >= slide and not stage.resolved.unified_memory:
        return window_too_wide(slide, sliding.window, page)
    return TwoPools(full, slide, "ratio")


def window_too_wide(tokens: int, window: int, page_size: int) -> Shortage:
    """Prefill charges a window and a page a request, so such a pool never admits one."""
    return Shortage(
        what="sliding pool",
        problem=f"a sliding pool of {tokens} tokens cannot admit one request: window {window} + page {page_size}",
        have_bytes=tokens,
        need_bytes=window + page_size + 1,
        raise_flags=("--swa-full-tokens-ratio", "--mem-fraction-static"),
    )
