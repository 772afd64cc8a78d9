"""Whole calls of an allocator: counting, checks, the free list and the slots together."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from baselines.plain_torch import Pages
from torch import Tensor

from kvplan.allocators.paged import PagedAllocator
from kvplan.allocators.token import TokenAllocator


class WholeCall(NamedTuple):
    """A call that is timed, and what puts the pool back afterwards."""

    form: Callable[[], Tensor]
    reset: Callable[[Tensor], None]


class Batch(NamedTuple):
    """Requests whose prefixes a pool holds, about to grow."""

    prefix_lens: Tensor
    seq_lens: Tensor
    last_loc: Tensor


def whole_calls(page_size: int, batch: int, new: int) -> dict[str, list[WholeCall]]:
    """Per operation kvplan's call and the plain one; kvplan's with its checks, as on the CPU, and without."""
    torch.manual_seed(batch * page_size)
    prefix_lens = torch.randint(1, 500, (batch,))
    num_pages = int(((prefix_lens + new) // page_size + 2).sum())
    calls: dict[str, list[WholeCall]] = {}
    for name, grown in {"extend": prefix_lens + new, "decode": prefix_lens + 1}.items():
        for title, checks in {"whole": True, "unchecked": False}.items():
            pool = new_pool(num_pages, page_size, checks=checks)
            plain = Pages(num_pages, page_size)
            calls[f"{title} {name}"] = [
                kvplan_call(pool, name, prefix_lens, grown),
                plain_call(plain, name, prefix_lens, grown),
            ]
    return calls


def new_pool(num_pages: int, page_size: int, *, checks: bool) -> PagedAllocator:
    if page_size == 1:
        return TokenAllocator(num_pages, checks=checks)
    return PagedAllocator(num_pages * page_size, page_size, checks=checks)


def filled(pool: PagedAllocator | Pages, prefix_lens: Tensor, seq_lens: Tensor) -> Batch:
    """The batch, its prefixes allocated."""
    none = torch.zeros_like(prefix_lens)
    slots = pool.alloc_extend(none, prefix_lens, none - 1)
    assert slots is not None
    return Batch(prefix_lens, seq_lens, slots[prefix_lens.cumsum(0) - 1])


def grow(pool: PagedAllocator | Pages, name: str, batch: Batch) -> Tensor:
    if name == "decode":
        slots = pool.alloc_decode(batch.seq_lens, batch.last_loc)
    else:
        slots = pool.alloc_extend(*batch)
    assert slots is not None
    return slots


def kvplan_call(
    pool: PagedAllocator, name: str, prefix_lens: Tensor, seq_lens: Tensor
) -> WholeCall:
    batch = filled(pool, prefix_lens, seq_lens)

    def reset(slots: Tensor) -> None:
        pool.free_page_ids(slots[slots % pool.page_size == 0] // pool.page_size)

    return WholeCall(lambda: grow(pool, name, batch), reset)


def plain_call(pool: Pages, name: str, prefix_lens: Tensor, seq_lens: Tensor) -> WholeCall:
    batch = filled(pool, prefix_lens, seq_lens)
    free_pages = pool.free_pages

    def reset(_slots: Tensor) -> None:
        pool.free_pages = free_pages

    return WholeCall(lambda: grow(pool, name, batch), reset)
