"""Sliding pages that full pages point at, taken out of the full-to-sliding mapping."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from kvplan.kernels.contract import check_page_size, check_vectors, output
from kvplan.kernels.walk import RUN_TIME
from kvplan.units import ceil_div

SLOT_TILE = 2048


def unmap_pages_reference(
    full_pages: Tensor,  # (num_pages,) int64, no page twice
    full_to_swa: Tensor,  # (num_slots,) int64, 0 where unmapped, changed in place
    page_size: int,
) -> Tensor:  # (num_pages,) int64
    """Sliding page of each full page, 0 where it has none; the page's entries become 0.

    Both sides page in step, so a page's first slot speaks for all of it.
    """
    num_pages = len(full_to_swa) // page_size
    by_page = full_to_swa[: num_pages * page_size].view(num_pages, page_size)
    swa_pages = by_page[:, 0].index_select(0, full_pages) // page_size
    by_page.index_fill_(0, full_pages, 0)
    return swa_pages


def unmap_pages(
    full_pages: Tensor,  # (num_pages,) int64, no page twice
    full_to_swa: Tensor,  # (num_slots,) int64, changed in place
    page_size: int,
    *,
    out: Tensor | None = None,  # (num_pages,) int64, written instead of a new tensor
) -> Tensor:  # (num_pages,) int64
    """Launch the kernel: one launch, no device sync, one compile per page size."""
    check_vectors(full_pages=full_pages, full_to_swa=full_to_swa)
    check_page_size(page_size)
    num_pages = len(full_pages)
    swa_pages = output(out, full_pages, num_pages)
    if num_pages == 0:
        return swa_pages
    offsets = triton.next_power_of_2(page_size)
    pages_each = max(1, SLOT_TILE // offsets)
    unmap_pages_kernel[(ceil_div(num_pages, pages_each),)](
        full_pages,
        full_to_swa,
        swa_pages,
        num_pages,
        page_size=page_size,
        PAGES=pages_each,
        OFFSETS=offsets,
    )
    return swa_pages


@triton.jit(do_not_specialize=RUN_TIME, do_not_specialize_on_alignment=RUN_TIME)
def unmap_pages_kernel(
    full_pages_ptr,
    full_to_swa_ptr,
    swa_pages_ptr,
    num_pages,
    page_size: tl.constexpr,
    PAGES: tl.constexpr,
    OFFSETS: tl.constexpr,
):
    item = tl.program_id(0).to(tl.int64) * PAGES + tl.arange(0, PAGES)
    present = item < num_pages
    page = tl.load(full_pages_ptr + item, mask=present, other=0)
    offset = tl.arange(0, OFFSETS)
    entry = full_to_swa_ptr + page[:, None] * page_size + offset[None, :]
    in_page = present[:, None] & (offset < page_size)[None, :]
    # one layout for both: the thread that clears a page's first entry has read it before
    swa_slot = tl.load(entry, mask=in_page & (offset == 0)[None, :], other=0)
    tl.store(entry, tl.zeros_like(swa_slot), mask=in_page)
    tl.store(swa_pages_ptr + item, tl.max(swa_slot, axis=1) // page_size, mask=present)
