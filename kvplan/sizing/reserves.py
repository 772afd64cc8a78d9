"""What one decode step may take, and how wide a request's row is because of it."""

from __future__ import annotations

import msgspec

from kvplan.sizing.resolved import Resolved, Speculation
from kvplan.units import ceil_div, ceil_page

ROW_HEADROOM = 4  # positions past the context that every row keeps


class Reserves(msgspec.Struct, frozen=True):
    """Lengths in tokens of one request, as the engine sizes rows and decode steps."""

    alloc_page_size: int
    alloc_len_per_decode: int
    alloc_reserve_per_decode: int
    extra_context_len: int
    row_width: int  # of req_to_token


def reserves(resolved: Resolved) -> Reserves:
    """Reserves of a resolved launch."""
    extra = extra_context_len(resolved)
    return Reserves(
        alloc_page_size=alloc_page_size(resolved),
        alloc_len_per_decode=alloc_len_per_decode(resolved),
        alloc_reserve_per_decode=alloc_reserve_per_decode(resolved),
        extra_context_len=extra,
        row_width=resolved.context_length + extra,
    )


def alloc_page_size(resolved: Resolved) -> int:
    """Tokens that the allocator hands out together: a page of every decode-context rank."""
    return resolved.page_size * resolved.widths.attn_dcp


def alloc_len_per_decode(resolved: Resolved) -> int:
    """Most tokens one request may take in a decode step.

    A tree over pages copies the last partial page for each branch; a lookup (NGRAM) writes no
    draft KV, and a chain or single-token pages need no copies.
    """
    spec = resolved.speculation
    if spec.algorithm is None:
        return 1
    tokens = draft_tokens(spec)
    if spec.algorithm == "UNO":
        return tokens + 1
    steps, topk, page = spec.num_steps or 1, spec.eagle_topk or 1, alloc_page_size(resolved)
    if page == 1 or topk == 1 or spec.algorithm == "NGRAM":
        return max(steps * topk, tokens)
    return max(ceil_div(page - 1 + steps, page) * page * topk, tokens)


def alloc_reserve_per_decode(resolved: Resolved) -> int:
    """Tokens kept for a request at each decode step: the overlapped schedule runs one ahead."""
    return 2 * alloc_len_per_decode(resolved)


def extra_context_len(resolved: Resolved) -> int:
    """Positions of a row beyond the context length."""
    spec, page = resolved.speculation, alloc_page_size(resolved)
    base = ROW_HEADROOM + draft_tokens(spec)
    if spec.algorithm is None or (page == 1 and spec.algorithm != "UNO"):
        return base
    return max(base, alloc_reserve_per_decode(resolved) + page - 1)


def draft_tokens(spec: Speculation) -> int:
    """Draft tokens that buffers are sized for; 0 without speculation."""
    return spec.max_draft_tokens or spec.num_draft_tokens or 0


def old_alloc_len_per_decode(resolved: Resolved) -> int:
    """The same bound where the schedule is not overlapped, with every part in whole pages."""
    spec, page = resolved.speculation, resolved.page_size
    steps, topk = spec.num_steps or 1, spec.eagle_topk or 1
    length = ceil_page(steps + page, page) if page > 1 and topk > 1 else ceil_page(steps, page)
    return max(length * topk, ceil_page(spec.num_draft_tokens or 1, page))
