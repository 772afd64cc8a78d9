"""The straightforward kernels: one program a request, each adding up the whole batch before it.

Loads grow with the square of the batch, and every power of two of it is a compile of its own.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


def extend(
    prefix_lens: Tensor,
    seq_lens: Tensor,
    last_loc: Tensor,
    free_pages: Tensor,
    page_size: int,
    num_tokens: int,
) -> Tensor:
    batch = len(seq_lens)
    out_cache_loc = prefix_lens.new_empty(num_tokens)
    extend_kernel[(batch,)](
        prefix_lens,
        seq_lens,
        last_loc,
        free_pages,
        out_cache_loc,
        BATCH=triton.next_power_of_2(batch),
        PAGE=page_size,
        OFFSETS=triton.next_power_of_2(page_size),
    )
    return out_cache_loc


@triton.jit(do_not_specialize=["pages_ptr"], do_not_specialize_on_alignment=["pages_ptr"])
def extend_kernel(
    prefix_ptr,
    seq_ptr,
    last_ptr,
    pages_ptr,
    out_ptr,
    BATCH: tl.constexpr,
    PAGE: tl.constexpr,
    OFFSETS: tl.constexpr,
):
    request = tl.program_id(0)
    lane = tl.arange(0, BATCH)
    prefixes = tl.load(prefix_ptr + lane, mask=lane <= request, other=0)
    seqs = tl.load(seq_ptr + lane, mask=lane <= request, other=0)
    tokens_to = tl.sum(seqs - prefixes)
    pages_to = tl.sum((seqs + PAGE - 1) // PAGE - (prefixes + PAGE - 1) // PAGE)

    prefix, seq = tl.load(prefix_ptr + request), tl.load(seq_ptr + request)
    held = (prefix + PAGE - 1) // PAGE
    first_page = pages_to - ((seq + PAGE - 1) // PAGE - held)
    out = out_ptr + tokens_to - (seq - prefix)
    offset = tl.arange(0, OFFSETS)

    part1 = tl.minimum(seq, held * PAGE) - prefix
    last_loc = tl.load(last_ptr + request)
    tl.store(out + offset, last_loc + 1 + offset, mask=offset < part1)

    if prefix + part1 < seq:
        part2 = (seq // PAGE - held) * PAGE
        block = tl.arange(0, 4096)
        for start in range(0, part2, 4096):
            token = start + block
            page = tl.load(pages_ptr + first_page + token // PAGE, mask=token < part2, other=0)
            tl.store(out + part1 + token, page * PAGE + token % PAGE, mask=token < part2)

        part3 = seq % PAGE
        last_page = tl.load(pages_ptr + pages_to - 1)
        tl.store(out + part1 + part2 + offset, last_page * PAGE + offset, mask=offset < part3)


def decode(seq_lens: Tensor, last_loc: Tensor, free_pages: Tensor, page_size: int) -> Tensor:
    batch = len(seq_lens)
    out_cache_loc = torch.empty_like(seq_lens)
    decode_kernel[(batch,)](
        seq_lens,
        last_loc,
        free_pages,
        out_cache_loc,
        BATCH=triton.next_power_of_2(batch),
        PAGE=page_size,
    )
    return out_cache_loc


@triton.jit(do_not_specialize=["pages_ptr"], do_not_specialize_on_alignment=["pages_ptr"])
def decode_kernel(seq_ptr, last_ptr, pages_ptr, out_ptr, BATCH: tl.constexpr, PAGE: tl.constexpr):
    request = tl.program_id(0)
    lane = tl.arange(0, BATCH)
    seqs = tl.load(seq_ptr + lane, mask=lane <= request, other=2)
    before = tl.where(lane <= request, seqs - 1, seqs)
    pages_to = tl.sum((seqs + PAGE - 1) // PAGE - (before + PAGE - 1) // PAGE)
    seq = tl.load(seq_ptr + request)
    if (seq + PAGE - 1) // PAGE == (seq - 1 + PAGE - 1) // PAGE:
        tl.store(out_ptr + request, tl.load(last_ptr + request) + 1)
    else:
        tl.store(out_ptr + request, tl.load(pages_ptr + pages_to - 1) * PAGE)


def decode_step(
    req_to_token: Tensor, rows: Tensor, seq_lens: Tensor, free_pages: Tensor, page_size: int
) -> Tensor:
    last_loc = req_to_token[rows, (seq_lens - 2).clamp(min=0)].to(torch.int64)
    out_cache_loc = decode(seq_lens, last_loc, free_pages, page_size)
    req_to_token[rows, seq_lens - 1] = out_cache_loc.to(torch.int32)
    return out_cache_loc


def write_rows(
    req_to_token: Tensor, rows: Tensor, prefix_lens: Tensor, seq_lens: Tensor, out_cache_loc: Tensor
) -> None:
    batch = len(rows)
    write_rows_kernel[(batch,)](
        req_to_token,
        rows,
        prefix_lens,
        seq_lens,
        out_cache_loc,
        req_to_token.stride(0),
        BATCH=triton.next_power_of_2(batch),
    )


@triton.jit
def write_rows_kernel(
    table_ptr, rows_ptr, prefix_ptr, seq_ptr, slots_ptr, stride, BATCH: tl.constexpr
):
    request = tl.program_id(0)
    lane = tl.arange(0, BATCH)
    prefixes = tl.load(prefix_ptr + lane, mask=lane < request, other=0)
    seqs = tl.load(seq_ptr + lane, mask=lane < request, other=0)
    start = tl.sum(seqs - prefixes)
    prefix, seq = tl.load(prefix_ptr + request), tl.load(seq_ptr + request)
    row = table_ptr + tl.load(rows_ptr + request) * stride
    for first in range(0, seq - prefix, 512):
        token = first + tl.arange(0, 512)
        slots = tl.load(slots_ptr + start + token, mask=token < seq - prefix, other=0)
        tl.store(row + prefix + token, slots.to(tl.int32), mask=token < seq - prefix)
