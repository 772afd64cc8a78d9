"""One decode step in one launch: read last_loc from the rows, allocate, write the new slots back."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvplan.kernels.alloc_decode import MAX_PROGRAMS, alloc_decode_reference
from kvplan.kernels.contract import (
    check_page_size,
    check_rows,
    check_same_batch,
    check_vectors,
    output,
)
from kvplan.kernels.walk import REQUEST_TILE, RUN_TIME, spans


def decode_step_reference(
    req_to_token: Tensor,  # (num_rows, row_width) int32, changed in place
    rows: Tensor,  # (batch,) int64, 0 for a padded request
    seq_lens: Tensor,  # (batch,) int64, the new token included
    free_pages: Tensor,  # (num_free_pages,) int64, taken from the head
    page_size: int,
) -> Tensor:  # (batch,) int64
    """Slot of position seq_len - 1 of each request, also written into its row.

    A padded request takes no page, changes no row, and gets the padding slot 0.
    """
    real = rows > 0
    real_lens = seq_lens[real]
    entries = rows[real] * req_to_token.shape[1] + real_lens - 1  # counted row after row
    last_loc = req_to_token.take(
        entries - 1
    ).long()  # of the row before for a first token: not used
    slots = alloc_decode_reference(real_lens, last_loc, free_pages, page_size)
    req_to_token.put_(entries, slots.to(req_to_token.dtype))
    return torch.zeros_like(rows).masked_scatter_(real, slots)


def decode_step(
    req_to_token: Tensor,  # (num_rows, row_width) int32, changed in place
    rows: Tensor,  # (batch,) int64, 0 for a padded request
    seq_lens: Tensor,  # (batch,) int64
    free_pages: Tensor,  # (num_free_pages,) int64
    page_size: int,
    *,
    out: Tensor | None = None,  # (batch,) int64, written instead of a new tensor
) -> Tensor:  # (batch,) int64
    """Launch the kernel: one launch, no device sync, one compile per page size.

    For a CUDA graph pass a fixed buffer as free_pages, and copy the head of the free list there
    before each replay. Pages that the list lacks read as the padding page.
    """
    check_vectors(rows=rows, seq_lens=seq_lens, free_pages=free_pages)
    batch = check_same_batch(rows=rows, seq_lens=seq_lens)
    check_rows(req_to_token, rows.device)
    check_page_size(page_size)
    out_cache_loc = output(out, seq_lens, batch)
    if batch == 0:
        return out_cache_loc
    num_programs, span = spans(batch, REQUEST_TILE, MAX_PROGRAMS)
    decode_step_kernel[(num_programs,)](
        req_to_token,
        rows,
        seq_lens,
        free_pages,
        out_cache_loc,
        req_to_token.stride(0),
        req_to_token.stride(1),
        batch,
        len(free_pages),
        span,
        page_size=page_size,
        REQUESTS=REQUEST_TILE,
    )
    return out_cache_loc


@triton.jit(do_not_specialize=RUN_TIME, do_not_specialize_on_alignment=RUN_TIME)
def decode_step_kernel(
    req_to_token_ptr,
    rows_ptr,
    seq_lens_ptr,
    free_pages_ptr,
    out_cache_loc_ptr,
    row_stride,
    token_stride,
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
        real = tl.load(rows_ptr + first + tl.arange(0, REQUESTS)) > 0
        seq_len = tl.load(seq_lens_ptr + first + tl.arange(0, REQUESTS))
        opened += (real & (seq_len % page_size == 1 % page_size)).to(tl.int64)
    pages_before = tl.sum(opened)
    for first in range(span_start, span_end, REQUESTS):
        request = first + tl.arange(0, REQUESTS)
        present = request < batch
        row = tl.load(rows_ptr + request, mask=present, other=0)
        real = row > 0
        seq_len = tl.load(seq_lens_ptr + request, mask=real, other=0)
        opens_page = real & (seq_len % page_size == 1 % page_size)
        num_new_pages = opens_page.to(tl.int64)
        rank = pages_before + tl.cumsum(num_new_pages) - num_new_pages
        page = tl.load(free_pages_ptr + rank, mask=opens_page & (rank < num_free_pages), other=0)
        entry = req_to_token_ptr + row * row_stride + (seq_len - 1) * token_stride
        last_loc = tl.load(entry - token_stride, mask=real & ~opens_page, other=-1)
        slot = tl.where(opens_page, page * page_size, last_loc.to(tl.int64) + 1)
        tl.store(entry, slot.to(tl.int32), mask=real)
        tl.store(out_cache_loc_ptr + request, slot, mask=present)
        pages_before += tl.sum(num_new_pages)
