"""Batches that a sound pool could hold, random and at the edges."""

from __future__ import annotations

import random
from typing import NamedTuple

import torch
from torch import Tensor

PAGE_SIZES = [1, 4, 16, 30, 64, 128, 256]


class Batch(NamedTuple):
    """Requests with their pages: slots[i] are those of request i's prefix."""

    page_size: int
    prefix_lens: list[int]
    seq_lens: list[int]
    last_loc: list[int]
    slots: list[list[int]]
    free_pages: list[int]
    rows: list[int]

    @property
    def num_tokens(self) -> int:
        return sum(self.seq_lens) - sum(self.prefix_lens)


def batch_of(page_size: int, lens: list[tuple[int, int]], seed: int = 0) -> Batch:
    """A batch of (prefix_len, new tokens) requests over shuffled pages, with one free page to spare."""
    rng = random.Random(seed)
    held = [-(-prefix_len // page_size) for prefix_len, _ in lens]
    total = sum(-(-(prefix_len + new) // page_size) for prefix_len, new in lens)
    pages = rng.sample(range(1, 2 * total + 3), total + 1)
    slots = []
    for (prefix_len, _), num_pages in zip(lens, held, strict=True):
        own = [pages.pop() for _ in range(num_pages)]
        slots.append(
            [
                own[position // page_size] * page_size + position % page_size
                for position in range(prefix_len)
            ]
        )
    return Batch(
        page_size=page_size,
        prefix_lens=[prefix_len for prefix_len, _ in lens],
        seq_lens=[prefix_len + new for prefix_len, new in lens],
        last_loc=[own[-1] if own else -1 for own in slots],
        slots=slots,
        free_pages=pages,
        rows=rng.sample(range(1, len(lens) + 3), len(lens)),
    )


def random_batch(page_size: int, seed: int, max_requests: int = 12, max_new: int = 300) -> Batch:
    rng = random.Random(seed)
    longest = rng.choice([1, page_size, 3 * page_size, max_new])
    lens = [
        (rng.randrange(0, 2 * page_size + 2), min(rng.randrange(0, longest + 1), max_new))
        for _ in range(rng.randrange(1, max_requests + 1))
    ]
    return batch_of(page_size, lens, seed)


def edge_batches(page_size: int) -> dict[str, Batch]:
    p = page_size
    lens: dict[str, list[tuple[int, int]]] = {
        "no request": [],
        "no token": [(0, 0), (p, 0), (1, 0)],
        "one token": [(0, 1)],
        "a page to the brim": [(p - 1, 1), (0, p)],
        "one past the page": [(p - 1, 2), (p, 1)],
        "whole pages only": [(p, 2 * p), (2 * p, p)],
        "idle ones among busy ones": [(3, 0), (0, p + 1), (p, 0), (2 * p + 1, 1), (0, 0)],
        "more than a tile of tokens": [(1, 7), (p // 2, 2100), (0, 3)],
        "more than a tile of requests": [(i % (2 * p), i % 2) for i in range(1030)],
    }
    return {name: batch_of(p, pairs) for name, pairs in lens.items()}


def table_of(batch: Batch, num_rows: int | None = None, width: int | None = None) -> Tensor:
    """req_to_token with each request's prefix slots in its row."""
    num_rows = num_rows or len(batch.rows) + 3
    width = width or max([*batch.seq_lens, 1])
    table = torch.zeros((num_rows, width), dtype=torch.int32)
    for row, own in zip(batch.rows, batch.slots, strict=True):
        table[row, : len(own)] = torch.tensor(own, dtype=torch.int32)
    return table
