"""What the kernels mean, one token after the other, in plain Python."""

from __future__ import annotations

from collections.abc import Sequence


def extend_slots(
    prefix_lens: Sequence[int],
    seq_lens: Sequence[int],
    last_loc: Sequence[int],
    free_pages: Sequence[int],
    page_size: int,
) -> list[int]:
    pages = iter(free_pages)
    out_cache_loc = []
    for prefix_len, seq_len, loc in zip(prefix_lens, seq_lens, last_loc, strict=True):
        for position in range(prefix_len, seq_len):
            loc = next(pages) * page_size if position % page_size == 0 else loc + 1
            out_cache_loc.append(loc)
    return out_cache_loc


def decode_rows(
    req_to_token: list[list[int]],
    rows: Sequence[int],
    seq_lens: Sequence[int],
    free_pages: Sequence[int],
    page_size: int,
) -> list[int]:
    pages = iter(free_pages)
    out_cache_loc = []
    for row, seq_len in zip(rows, seq_lens, strict=True):
        slot = 0
        if row:
            new_page = (seq_len - 1) % page_size == 0
            slot = next(pages) * page_size if new_page else req_to_token[row][seq_len - 2] + 1
            req_to_token[row][seq_len - 1] = slot
        out_cache_loc.append(slot)
    return out_cache_loc


def write_slots(
    req_to_token: list[list[int]],
    rows: Sequence[int],
    prefix_lens: Sequence[int],
    seq_lens: Sequence[int],
    out_cache_loc: Sequence[int],
) -> None:
    slots = iter(out_cache_loc)
    for row, prefix_len, seq_len in zip(rows, prefix_lens, seq_lens, strict=True):
        for position in range(prefix_len, seq_len):
            req_to_token[row][position] = next(slots)


def unmap(full_pages: Sequence[int], full_to_swa: list[int], page_size: int) -> list[int]:
    swa_pages = []
    for page in full_pages:
        swa_pages.append(full_to_swa[page * page_size] // page_size)
        for slot in range(page * page_size, (page + 1) * page_size):
            full_to_swa[slot] = 0
    return swa_pages
