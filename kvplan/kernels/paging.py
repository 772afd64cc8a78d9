"""Pages and offsets of slot vectors, by shifts where the page size is a power of two."""

from __future__ import annotations

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
