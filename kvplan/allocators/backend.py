"""Which code computes the slots: the torch reference or the Triton kernels."""

from __future__ import annotations

from enum import StrEnum

from torch import Tensor

from kvplan.kernels.alloc_decode import alloc_decode, alloc_decode_reference
from kvplan.kernels.alloc_extend import alloc_extend, alloc_extend_reference
from kvplan.kernels.unmap_pages import unmap_pages, unmap_pages_reference


class Backend(StrEnum):
    """`reference` is plain torch; `kernel` needs a CUDA device or Triton's interpreter."""

    REFERENCE = "reference"
    KERNEL = "kernel"


def extend_slots(
    backend: Backend,
    prefix_lens: Tensor,
    seq_lens: Tensor,
    last_loc: Tensor,
    free_pages: Tensor,
    page_size: int,
    *,
    num_tokens: int,
) -> Tensor:
    """Slots (num_tokens,) of all new tokens in batch order; `free_pages` holds the pages to use."""
    if backend is Backend.REFERENCE:
        return alloc_extend_reference(prefix_lens, seq_lens, last_loc, free_pages, page_size)
    return alloc_extend(prefix_lens, seq_lens, last_loc, free_pages, page_size, num_tokens)


def decode_slots(
    backend: Backend, seq_lens: Tensor, last_loc: Tensor, free_pages: Tensor, page_size: int
) -> Tensor:
    """Slots (batch,) of one new token per request; `free_pages` holds the pages to use."""
    if backend is Backend.REFERENCE:
        return alloc_decode_reference(seq_lens, last_loc, free_pages, page_size)
    return alloc_decode(seq_lens, last_loc, free_pages, page_size)


def unmapped_pages(
    backend: Backend, full_pages: Tensor, full_to_swa: Tensor, page_size: int
) -> Tensor:
    """The second pool's page of each of `full_pages` (none twice), 0 without one; unmaps them."""
    if backend is Backend.REFERENCE:
        return unmap_pages_reference(full_pages, full_to_swa, page_size)
    return unmap_pages(full_pages, full_to_swa, page_size)
