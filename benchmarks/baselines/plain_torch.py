"""The paging arithmetic of SGLang's kernels written down in plain torch, as it stands in prose.

An extend fills three parts of each request: the rest of its open page, whole new pages, and the
beginning of a last one. Written once per token (every part computed for every token, one chosen)
and once per request (the three parts cut out one after the other).
"""

from __future__ import annotations

import torch
from torch import Tensor


def extend_by_token(
    prefix_lens: Tensor, seq_lens: Tensor, last_loc: Tensor, free_pages: Tensor, page_size: int
) -> Tensor:
    new_lens = seq_lens - prefix_lens
    ends = torch.cumsum(new_lens, 0)
    pages_before = (prefix_lens + page_size - 1) // page_size
    pages_after = (seq_lens + page_size - 1) // page_size
    page_ends = torch.cumsum(pages_after - pages_before, 0)
    page_starts = page_ends - (pages_after - pages_before)
    part1 = torch.minimum(seq_lens, pages_before * page_size) - prefix_lens
    part2 = (seq_lens // page_size - pages_before).clamp(min=0) * page_size

    token = torch.arange(int(new_lens.sum()), device=seq_lens.device)
    owner = torch.searchsorted(ends, token, right=True)
    offset = token - (ends - new_lens)[owner]
    last_page = len(free_pages) - 1
    in_part2 = offset - part1[owner]
    in_part3 = in_part2 - part2[owner]
    page2 = free_pages[(page_starts[owner] + in_part2 // page_size).clamp(0, last_page)]
    page3 = free_pages[(page_ends[owner] - 1).clamp(0, last_page)]
    slots1 = last_loc[owner] + 1 + offset
    slots2 = page2 * page_size + in_part2 % page_size
    slots3 = page3 * page_size + in_part3
    return torch.where(in_part2 < 0, slots1, torch.where(in_part3 < 0, slots2, slots3))


def extend_by_request(
    prefix_lens: Tensor, seq_lens: Tensor, last_loc: Tensor, free_pages: Tensor, page_size: int
) -> Tensor:
    out_cache_loc = torch.empty(int((seq_lens - prefix_lens).sum()), dtype=torch.int64)
    offsets = torch.arange(page_size)
    start, next_page = 0, 0
    requests = zip(prefix_lens.tolist(), seq_lens.tolist(), last_loc.tolist(), strict=True)
    for prefix_len, seq_len, loc in requests:
        pages_before = -(-prefix_len // page_size)
        part1 = min(seq_len, pages_before * page_size) - prefix_len
        out_cache_loc[start : start + part1] = loc + 1 + offsets[:part1]
        start += part1
        full_pages = max(seq_len // page_size - pages_before, 0)
        pages = free_pages[next_page : next_page + full_pages]
        out_cache_loc[start : start + full_pages * page_size] = (
            pages[:, None] * page_size + offsets
        ).view(-1)
        start += full_pages * page_size
        next_page += full_pages
        part3 = seq_len - (pages_before + full_pages) * page_size
        if part3 > 0:
            out_cache_loc[start : start + part3] = (
                free_pages[next_page] * page_size + offsets[:part3]
            )
            start += part3
            next_page += 1
    return out_cache_loc


def decode(seq_lens: Tensor, last_loc: Tensor, free_pages: Tensor, page_size: int) -> Tensor:
    pages_after = (seq_lens + page_size - 1) // page_size
    pages_before = (seq_lens - 1 + page_size - 1) // page_size
    num_new_pages = pages_after - pages_before
    page_starts = torch.cumsum(num_new_pages, 0) - num_new_pages
    pages = free_pages[page_starts.clamp(max=len(free_pages) - 1)]
    return torch.where(num_new_pages == 0, last_loc + 1, pages * page_size)


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
    start = 0
    requests = zip(rows.tolist(), prefix_lens.tolist(), seq_lens.tolist(), strict=True)
    for row, prefix_len, seq_len in requests:
        slots = out_cache_loc[start : start + seq_len - prefix_len]
        req_to_token[row, prefix_len:seq_len] = slots.to(torch.int32)
        start += seq_len - prefix_len


def unmap_pages(full_pages: Tensor, full_to_swa: Tensor, page_size: int) -> Tensor:
    first_slots = full_pages * page_size
    swa_pages = full_to_swa[first_slots] // page_size
    offsets = torch.arange(page_size, device=full_pages.device)
    full_to_swa.index_fill_(0, (first_slots[:, None] + offsets).view(-1), 0)
    return swa_pages


class Pages:
    """An allocator around these: lengths counted, a free list cut at its head, nothing checked."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.page_size = page_size
        self.free_pages = torch.arange(1, num_pages + 1)

    def alloc_extend(
        self, prefix_lens: Tensor, seq_lens: Tensor, last_loc: Tensor
    ) -> Tensor | None:
        if self.page_size == 1:
            return self._take(int((seq_lens - prefix_lens).sum()))
        slots = extend_by_token(prefix_lens, seq_lens, last_loc, self.free_pages, self.page_size)
        return None if self._take(self._new_pages(prefix_lens, seq_lens)) is None else slots

    def alloc_decode(self, seq_lens: Tensor, last_loc: Tensor) -> Tensor | None:
        if self.page_size == 1:
            return self._take(len(seq_lens))
        slots = decode(seq_lens, last_loc, self.free_pages, self.page_size)
        return None if self._take(self._new_pages(seq_lens - 1, seq_lens)) is None else slots

    def _new_pages(self, prefix_lens: Tensor, seq_lens: Tensor) -> int:
        pages_after = (seq_lens + self.page_size - 1) // self.page_size
        pages_before = (prefix_lens + self.page_size - 1) // self.page_size
        return int((pages_after - pages_before).sum())

    def _take(self, num_pages: int) -> Tensor | None:
        if num_pages > len(self.free_pages):
            return None
        taken = self.free_pages[:num_pages]
        self.free_pages = self.free_pages[num_pages:]
        return taken
