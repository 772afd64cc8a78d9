"""One new slot per request: the next one of its page, or the head of a new page."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from kvplan.kernels.contract import check_page_size, check_same_batch, check_vectors, output
from kvplan.kernels.paging import offset_of
from kvplan.kernels.walk import REQUEST_TILE, RUN_TIME, spans

MAX_PROGRAMS = 16


def alloc_decode_reference(
    seq_lens: Tensor,  # (batch,) int64, the new token included
    last_loc: Tensor,  # (batch,) int64
    free_pages: Tensor,  # (num_free_pages,) int64, taken from the head
    page_size: int,
) -> Tensor:  # (batch,) int64
    """Slot of position seq_len - 1 of each request; new pages go out in request order."""
    opens_page = offset_of(seq_lens, page_size) == 1 % page_size
    return (last_loc + 1).masked_scatter_(opens_page, free_pages[: len(seq_lens)] * page_size)


def alloc_decode(
    seq_lens: Tensor,  # (batch,) int64
    last_loc: Tensor,  # (batch,) int64
    free_pages: Tensor,  # (num_free_pages,) int64
    page_size: int,
    *,
    out: Tensor | None = None,  # (batch,) int64, written instead of a new tensor
) -> Tensor:  # (batch,) int64
    """Launch the kernel: one launch, no device sync, one compile per page size.

    Pages that a too short free list lacks read as the padding page, never past the list.
    """
    check_vectors(seq_lens=seq_lens, last_loc=last_loc, free_pages=free_pages)
    batch = check_same_batch(seq_lens=seq_lens, last_loc=last_loc)
    check_page_size(page_size)
    out_cache_loc = output(out, seq_lens, batch)
    if batch == 0:
        return out_cache_loc
    num_programs, span = spans(batch, REQUEST_TILE, MAX_PROGRAMS)
    alloc_decode_kernel[(num_programs,)](
        seq_lens,
        last_loc,
        free_pages,
        out_cache_loc,
        batch,
        len(free_pages),
        span,
        page_size=page_size,
        REQUESTS=REQUEST_TILE,
    )
    return out_cache_loc


@triton.jit(do_not_specialize=RUN_TIME, do_not_specialize_on_alignment=RUN_TIME)
def alloc_decode_kernel(
    seq_lens_ptr,
    last_loc_ptr,
    free_pages_ptr,
    out_cache_loc_ptr,
    batch,
    num_free_pages,
    span,
    page_size: tl.constexpr,
    REQUESTS: tl.constexpr,
):
    span_start = tl.program_id(0).to(tl.int64) * span
    span_end = tl.minimum(span_start + span, batch)
    opened = tl.full((REQUESTS,), 0, tl.int64)
    for first in range(0, span_start, REQUESTS):
        seq_len = tl.load(seq_lens_ptr + first + tl.arange(0, REQUESTS))
        opened += (seq_len % page_size == 1 % page_size).to(tl.int64)
    pages_before = tl.sum(opened)
    for first in range(span_start, span_end, REQUESTS):
        request = first + tl.arange(0, REQUESTS)
        present = request < batch
        seq_len = tl.load(seq_lens_ptr + request, mask=present, other=0)
        opens_page = present & (seq_len % page_size == 1 % page_size)
        num_new_pages = opens_page.to(tl.int64)
        rank = pages_before + tl.cumsum(num_new_pages) - num_new_pages
        page = tl.load(free_pages_ptr + rank, mask=opens_page & (rank < num_free_pages), other=0)
        last_loc = tl.load(last_loc_ptr + request, mask=present, other=0)
        slot = tl.where(opens_page, page * page_size, last_loc + 1)
        tl.store(out_cache_loc_ptr + request, slot, mask=present)
        pages_before += tl.sum(num_new_pages)
