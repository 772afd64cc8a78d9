"""Slots for many new tokens per request: the open page first, then new pages in request order."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvplan.kernels.contract import check_page_size, check_same_batch, check_vectors, output
from kvplan.kernels.walk import MAX_PROGRAMS, REQUEST_TILE, RUN_TIME, TOKEN_TILE, owner_of, spans


def alloc_extend_reference(
    prefix_lens: Tensor,  # (batch,) int64
    seq_lens: Tensor,  # (batch,) int64
    last_loc: Tensor,  # (batch,) int64, -1 without a prefix
    free_pages: Tensor,  # (num_free_pages,) int64, taken from the head
    page_size: int,
) -> Tensor:  # (sum of seq_lens - prefix_lens,) int64
    """Slots of positions prefix_len .. seq_len - 1 of each request, in batch order.

    A request's slots come in runs of consecutive ones: what is left of its open page,
    then one run per new page.
    """
    pages_before = (prefix_lens + (page_size - 1)) // page_size
    pages_after = (seq_lens + (page_size - 1)) // page_size
    last_run = torch.cumsum(pages_after - pages_before + 1, 0) - 1
    first_run = last_run - (pages_after - pages_before)
    num_runs = int(last_run[-1]) + 1 if len(last_run) else 0

    # a request without new pages has one run, its first: that length is written last
    run_lens = prefix_lens.new_full((num_runs,), page_size)
    run_lens.index_copy_(0, last_run, seq_lens - (pages_after - 1) * page_size)
    in_open_page = torch.minimum(pages_before * page_size, seq_lens) - prefix_lens
    run_lens.index_copy_(0, first_run, in_open_page)

    opens_page = torch.ones(num_runs, dtype=torch.bool, device=prefix_lens.device)
    opens_page.index_fill_(0, first_run, False)
    new_pages = free_pages[: num_runs - len(prefix_lens)]
    run_slots = prefix_lens.new_empty(num_runs).index_copy_(0, first_run, last_loc + 1)
    run_slots.masked_scatter_(opens_page, new_pages * page_size)

    run_ends = torch.cumsum(run_lens, 0)
    num_tokens = int(run_ends[-1]) if num_runs else 0
    shift = torch.repeat_interleave(
        run_slots - (run_ends - run_lens), run_lens, output_size=num_tokens
    )
    return shift + torch.arange(num_tokens, device=shift.device)


def alloc_extend(
    prefix_lens: Tensor,  # (batch,) int64
    seq_lens: Tensor,  # (batch,) int64
    last_loc: Tensor,  # (batch,) int64
    free_pages: Tensor,  # (num_free_pages,) int64
    page_size: int,
    num_tokens: int,  # sum of seq_lens - prefix_lens, known on the host
    *,
    out: Tensor | None = None,  # (num_tokens,) int64, written instead of a new tensor
) -> Tensor:  # (num_tokens,) int64
    """Launch the kernel: one launch, no device sync, one compile per page size.

    Pages that a too short free list lacks read as the padding page, never past the list.
    """
    check_vectors(
        prefix_lens=prefix_lens, seq_lens=seq_lens, last_loc=last_loc, free_pages=free_pages
    )
    batch = check_same_batch(prefix_lens=prefix_lens, seq_lens=seq_lens, last_loc=last_loc)
    check_page_size(page_size)
    out_cache_loc = output(out, prefix_lens, num_tokens)
    if num_tokens == 0:
        return out_cache_loc
    num_programs, span = spans(num_tokens, TOKEN_TILE, MAX_PROGRAMS)
    alloc_extend_kernel[(num_programs,)](
        prefix_lens,
        seq_lens,
        last_loc,
        free_pages,
        out_cache_loc,
        batch,
        len(free_pages),
        num_tokens,
        span,
        page_size=page_size,
        REQUESTS=REQUEST_TILE,
        TOKENS=TOKEN_TILE,
    )
    return out_cache_loc


@triton.jit(do_not_specialize=RUN_TIME, do_not_specialize_on_alignment=RUN_TIME)
def alloc_extend_kernel(
    prefix_lens_ptr,
    seq_lens_ptr,
    last_loc_ptr,
    free_pages_ptr,
    out_cache_loc_ptr,
    batch,
    num_free_pages,
    num_tokens,
    span,
    page_size: tl.constexpr,
    REQUESTS: tl.constexpr,
    TOKENS: tl.constexpr,
):
    span_start = tl.program_id(0).to(tl.int64) * span
    span_end = tl.minimum(span_start + span, num_tokens)
    tokens_before = tl.full((), 0, tl.int64)
    pages_before = tl.full((), 0, tl.int64)
    first = tl.full((), 0, tl.int64)
    while (first < batch) & (tokens_before < span_end):
        request = first + tl.arange(0, REQUESTS)
        prefix_lens = tl.load(prefix_lens_ptr + request, mask=request < batch, other=0)
        seq_lens = tl.load(seq_lens_ptr + request, mask=request < batch, other=0)
        lens = seq_lens - prefix_lens
        pages_held = (prefix_lens + page_size - 1) // page_size
        num_new_pages = (seq_lens + page_size - 1) // page_size - pages_held
        tokens_after = tokens_before + tl.sum(lens)
        if tokens_after > span_start:
            token_ends = tokens_before + tl.cumsum(lens)
            token_starts = token_ends - lens
            page_starts = pages_before + tl.cumsum(num_new_pages) - num_new_pages
            for tile in range(
                tl.maximum(span_start, tokens_before), tl.minimum(span_end, tokens_after), TOKENS
            ):
                token = tile + tl.arange(0, TOKENS)
                here = token < tl.minimum(span_end, tokens_after)
                lane = owner_of(token_ends, token, REQUESTS)
                prefix_len = tl.load(prefix_lens_ptr + first + lane, mask=here, other=0)
                position = prefix_len + token - tl.gather(token_starts, lane, 0)
                new_page = position // page_size - (prefix_len + page_size - 1) // page_size
                in_open_page = new_page < 0
                last_loc = tl.load(
                    last_loc_ptr + first + lane, mask=here & in_open_page, other=0
                ).to(tl.int64)
                rank = tl.gather(page_starts, lane, 0) + new_page
                page = tl.load(
                    free_pages_ptr + rank,
                    mask=here & (new_page >= 0) & (rank < num_free_pages),
                    other=0,
                ).to(tl.int64)
                slot = tl.where(
                    in_open_page,
                    last_loc + 1 + position - prefix_len,
                    page * page_size + position % page_size,
                )
                tl.store(out_cache_loc_ptr + token, slot, mask=here)
        tokens_before = tokens_after
        pages_before += tl.sum(num_new_pages)
        first += REQUESTS
