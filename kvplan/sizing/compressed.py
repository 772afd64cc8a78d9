"""DeepSeek-V4: one token budget over compressed layers, a window pool and state rings."""

from __future__ import annotations

from collections import Counter

from kvplan.sizing.capacities import CompressedPools
from kvplan.sizing.cell import Cell, CellTerm
from kvplan.sizing.resolved import Resolved
from kvplan.sizing.shortage import Shortage
from kvplan.sizing.sliding import window_too_wide
from kvplan.sizing.stage import Stage
from kvplan.spec.model import Compressed
from kvplan.units import ceil_page, floor_page

PAGE_ALIGN_BYTES = 576  # a page of latents is padded to a multiple of this
SCALE_BYTES = 8  # scales of one latent
STATE_BYTES = 4  # compression state is float32
DRAFT_LAYERS = 1
RINGS = {4: 8, 128: 128}  # compression state a ring holds, per ratio
SPECULATIVE_RINGS = {4: 16, 128: 256}


def latent_page_bytes(resolved: Resolved, compressed: Compressed, num_tokens: int) -> int:
    """One page of latents: 448 nope + 64 × 2 rope + 8 scales a token, padded.

    trtllm reads uniform rows of fp8 instead, without scales or padding.
    """
    if resolved.uniform_latents:
        return num_tokens * state_row_elems(compressed)
    token = compressed.qk_nope_head_dim + compressed.qk_rope_head_dim * 2 + SCALE_BYTES
    return ceil_page(num_tokens * token, PAGE_ALIGN_BYTES)


def ring_slots(resolved: Resolved, ratio: int) -> int:
    """Compression states that a ring keeps; wider where a verify step writes ahead."""
    rings = RINGS if resolved.speculation.algorithm is None else SPECULATIVE_RINGS
    return rings[ratio]


def layer_counts(stage: Stage, compressed: Compressed) -> Counter[int]:
    """Layers of this stage per compression ratio."""
    return Counter(compressed.ratios[layer] for layer in stage.span)


def state_row_elems(compressed: Compressed) -> int:
    """K and V of one compression state: the latent's width."""
    return compressed.qk_nope_head_dim + compressed.qk_rope_head_dim


def sliding_token_bytes(stage: Stage, compressed: Compressed) -> float:
    """A sliding slot in every layer, and the c4 state ring that a sliding page carries."""
    page, counts = stage.resolved.page_size, layer_counts(stage, compressed)
    state = 4 * (state_row_elems(compressed) + compressed.index_head_dim) * STATE_BYTES
    ring_share = ring_slots(stage.resolved, 4) / page if counts[4] else 0
    window = latent_page_bytes(stage.resolved, compressed, page) / page * len(stage.span)
    return window + ring_share * state * counts[4]


def compressed_token_bytes(stage: Stage, compressed: Compressed, ratio: int) -> float:
    """What one full token adds to one layer of a ratio; ratio 4 keeps index keys too."""
    in_page = stage.resolved.page_size // ratio
    shrunk = ratio * stage.resolved.logical_ratio if ratio == 4 else ratio
    latent = 1 / shrunk * (latent_page_bytes(stage.resolved, compressed, in_page) / in_page)
    if ratio != 4:
        return latent
    return latent + 1 / 4 * (compressed.index_head_dim + compressed.index_head_dim // 128 * 4)


def stage_cell(stage: Stage) -> Cell:
    """Bytes of one full token over all pools; a draft worker inflates them by a layer's share."""
    compressed, resolved = stage.model.compressed, stage.resolved
    assert compressed is not None
    counts = layer_counts(stage, compressed)
    token_bytes, share = compressed_token_bytes, resolved.swa_full_tokens_ratio
    if resolved.request_ring is not None:
        from kvplan.sizing.request_ring import full_token_bytes as token_bytes

        share = 0
    window = share * sliding_token_bytes(stage, compressed)
    terms = [CellTerm("sliding KV", window, f"ratio {share}")] if share else []
    latents = [
        CellTerm(
            f"c{each} KV",
            token_bytes(stage, compressed, each) * counts[each],
            f"{counts[each]} layers of ratio {each}",
        )
        for each in (4, 128)
        if counts[each]
    ]
    # the engine's order of sums: its floats decide the last token
    total = window + sum(term.num_bytes for term in latents)
    terms += latents
    inflation = draft_inflation(stage)
    if inflation != 1:
        formula = f"{DRAFT_LAYERS} of {len(stage.span)} layers"
        terms.append(CellTerm("draft KV", total * inflation - total, formula))
        total *= inflation
    return Cell(total, tuple(terms))


def draft_inflation(stage: Stage) -> float:
    """A draft worker's share of every byte: a layer more."""
    if stage.resolved.speculation.algorithm is None:
        return 1
    layers = len(stage.span)
    return (layers + DRAFT_LAYERS) / layers


def request_slots(resolved: Resolved, max_running: int) -> int:
    """Rings are addressed by request row, the padding row included."""
    return max_running + resolved.decode_extra_slots + 1


def c128_state_slots(resolved: Resolved, max_running: int) -> int:
    """Rows of the c128 state: a ring a request."""
    return request_slots(resolved, max_running) * ring_slots(resolved, 128)


def c128_state_bytes(stage: Stage, max_running: int) -> int:
    """Fixed bytes of the c128 rings, which depend on the requests and not on the tokens."""
    compressed, resolved = stage.model.compressed, stage.resolved
    assert compressed is not None
    layers = layer_counts(stage, compressed)[128]
    rows = c128_state_slots(resolved, max_running) + ring_slots(resolved, 128) + 1
    elems = 2 * state_row_elems(compressed)
    return ceil_page(rows, 128) * elems * STATE_BYTES * layers


def split_budget(stage: Stage, budget_bytes: int) -> CompressedPools | Shortage:
    """All pools from the budget, after the rings of the running requests."""
    resolved = stage.resolved
    cell = stage_cell(stage).num_bytes
    requests = expected_requests(resolved, budget_bytes, cell)
    fixed = c128_state_bytes(stage, requests)
    if resolved.request_ring is not None:
        from kvplan.sizing.request_ring import fixed_bytes

        fixed += fixed_bytes(stage, requests)
    return resize(stage, int(max(budget_bytes - fixed, 0) / cell))


def expected_requests(resolved: Resolved, budget_bytes: int, cell: float) -> int:
    """Requests that the fixed rings are budgeted for."""
    if resolved.max_running_requests is not None:
        return max(1, resolved.max_running_requests // resolved.widths.attn_dp)
    tokens = int(budget_bytes / cell)
    guess = int(tokens / resolved.context_length * 512)
    return min(max(min(guess, 4096), 2048), tokens // 2)


def resize(stage: Stage, tokens: int) -> CompressedPools | Shortage:
    """Full tokens in whole pages, and what follows from them."""
    compressed, resolved = stage.model.compressed, stage.resolved
    assert compressed is not None
    page = resolved.page_size
    full = floor_page(tokens, page)
    sliding = floor_page(int(full * resolved.swa_full_tokens_ratio), page)
    if compressed.window + page >= sliding and resolved.request_ring is None:
        return window_too_wide(sliding, compressed.window, page)
    has_c4 = layer_counts(stage, compressed)[4]
    return CompressedPools(
        full_tokens=full,
        sliding_tokens=sliding,
        c4_tokens=full // (4 * resolved.logical_ratio),
        c128_tokens=full // 128,
        c4_state_slots=sliding // page * ring_slots(resolved, 4) if has_c4 else 0,
    )
