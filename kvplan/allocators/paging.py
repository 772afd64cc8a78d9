"""Pages and offsets of slot vectors, by shifts where the page size is a power of two."""

from __future__ import annotations

import torch
from torch import Tensor


def page_of(slots: Tensor, page_size: int) -> Tensor:
    """The page of each slot, rounded down: -1 stays -1."""
    if page_size & (page_size - 1):
        return slots // page_size
    return slots >> (page_size.bit_length() - 1)


def offset_of(slots: Tensor, page_size: int) -> Tensor:
    """The offset of each slot in its page, 0 .. page_size - 1 for negative ones too."""
    if page_size & (page_size - 1):
        return slots % page_size
    return slots & (page_size - 1)


def slots_of(pages: Tensor, page_size: int) -> Tensor:
    """All slots of the pages, (num_pages, page_size)."""
    return pages[:, None] * page_size + torch.arange(page_size, device=pages.device)
