"""Slots of new tokens into the lines that their requests hold in req_to_token."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvplan.kernels.contract import check_rows, check_same_batch, check_vectors
from kvplan.kernels.walk import MAX_PROGRAMS, REQUEST_TILE, RUN_TIME, TOKEN_TILE, owner_of, spans


def write_rows_reference(
    req_to_token: Tensor,  # (num_rows, row_width) int32, changed in place
    rows: Tensor,  # (batch,) int64
    prefix_lens: Tensor,  # (batch,) int64
    seq_lens: Tensor,  # (batch,) int64
    out_cache_loc: Tensor,  # (sum of seq_lens - prefix_lens,) int64, in batch order
) -> None:
    """Set req_to_token[row, prefix_len:seq_len] of each request to its slots."""
    lens = seq_lens - prefix_lens
    starts = torch.cumsum(lens, 0) - lens
    first_entries = rows * req_to_token.shape[1] + prefix_lens  # counted row after row
    num_tokens = len(out_cache_loc)
    shift = torch.repeat_interleave(first_entries - starts, lens, output_size=num_tokens)
    entries = shift + torch.arange(num_tokens, device=shift.device)
    req_to_token.put_(entries, out_cache_loc.to(req_to_token.dtype))


def write_rows(
    req_to_token: Tensor,  # (num_rows, row_width) int32, changed in place
    rows: Tensor,  # (batch,) int64
    prefix_lens: Tensor,  # (batch,) int64
    seq_lens: Tensor,  # (batch,) int64
    out_cache_loc: Tensor,  # (sum of seq_lens - prefix_lens,) int64
) -> None:
    """Launch the kernel: one launch, no device sync, one compile."""
    check_vectors(
        rows=rows, prefix_lens=prefix_lens, seq_lens=seq_lens, out_cache_loc=out_cache_loc
    )
    batch = check_same_batch(rows=rows, prefix_lens=prefix_lens, seq_lens=seq_lens)
    check_rows(req_to_token, rows.device)
    num_tokens = len(out_cache_loc)
    if num_tokens == 0:
        return
    num_programs, span = spans(num_tokens, TOKEN_TILE, MAX_PROGRAMS)
    write_rows_kernel[(num_programs,)](
        req_to_token,
        rows,
        prefix_lens,
        seq_lens,
        out_cache_loc,
        req_to_token.stride(0),
        req_to_token.stride(1),
        batch,
        num_tokens,
        span,
        REQUESTS=REQUEST_TILE,
        TOKENS=TOKEN_TILE,
    )


@triton.jit(do_not_specialize=RUN_TIME, do_not_specialize_on_alignment=RUN_TIME)
def write_rows_kernel(
    req_to_token_ptr,
    rows_ptr,
    prefix_lens_ptr,
    seq_lens_ptr,
    out_cache_loc_ptr,
    row_stride,
    token_stride,
    batch,
    num_tokens,
    span,
    REQUESTS: tl.constexpr,
    TOKENS: tl.constexpr,
):
    span_start = tl.program_id(0).to(tl.int64) * span
    span_end = tl.minimum(span_start + span, num_tokens)
    tokens_before = tl.full((), 0, tl.int64)
    first = tl.full((), 0, tl.int64)
    while (first < batch) & (tokens_before < span_end):
        request = first + tl.arange(0, REQUESTS)
        prefix_lens = tl.load(prefix_lens_ptr + request, mask=request < batch, other=0)
        seq_lens = tl.load(seq_lens_ptr + request, mask=request < batch, other=0)
        lens = seq_lens - prefix_lens
        tokens_after = tokens_before + tl.sum(lens)
        if tokens_after > span_start:
            stop = tl.minimum(span_end, tokens_after)
            token_ends = tokens_before + tl.cumsum(lens)
            first_positions = prefix_lens - (token_ends - lens)
            for tile in range(tl.maximum(span_start, tokens_before), stop, TOKENS):
                token = tile + tl.arange(0, TOKENS)
                here = token < stop
                lane = owner_of(token_ends, token, REQUESTS)
                position = token + tl.gather(first_positions, lane, 0)
                row = tl.load(rows_ptr + first + lane, mask=here, other=0)
                slot = tl.load(out_cache_loc_ptr + token, mask=here, other=0)
                entry = req_to_token_ptr + row * row_stride + position * token_stride
                tl.store(entry, slot.to(tl.int32), mask=here)
        tokens_before = tokens_after
        first += REQUESTS
