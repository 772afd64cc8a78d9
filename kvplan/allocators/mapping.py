"""The table from full (or logical) slots to the slots of a second pool."""

from __future__ import annotations

import torch
from torch import Tensor

from kvplan.allocators.demand import Demand
from kvplan.allocators.paged import PagedAllocator
from kvplan.allocators.paging import slots_of
from kvplan.errors import PoolError


def new_mapping(size: int, page_size: int, device: torch.device) -> Tensor:
    """Int64 (size + page_size + 1,): 0 unmapped, the last entry -1 for a last_loc of -1."""
    mapping = torch.zeros(size + page_size + 1, dtype=torch.int64, device=device)
    clear_mapping(mapping)
    return mapping


def clear_mapping(mapping: Tensor) -> None:
    """Unmap everything in place: pools that read the table keep reading this one."""
    mapping.zero_()
    mapping[-1:] = -1


def peer_pages(pages: Tensor, mapping: Tensor, page_size: int) -> Tensor:
    """The second pool's page of each page, (num_pages,); 0 where no slot of it is mapped."""
    return mapping[slots_of(pages, page_size)].amax(1) // page_size


def refuse_unmapped(pages: Tensor, mapping: Tensor, page_size: int, *, hint: str) -> None:
    """Refuse pages whose second part was given back before."""
    gone = peer_pages(pages, mapping, page_size) == 0
    if bool(gone.any()):
        page = int(pages[gone][0])
        raise PoolError(
            f"page {page} (slot {page * page_size}) has no sliding page any more: "
            "padding would enter the sliding free list",
            hint=hint,
        )


def refuse_mapped(index: Tensor, mapping: Tensor) -> None:
    """Refuse slots whose second part is still there and would be lost."""
    live = mapping[index] != 0
    if bool(live.any()):
        raise PoolError(
            f"slot {int(index[live][0])} still has a sliding slot, which would be lost",
            hint="use free or free_segment, which give back both sides",
        )


def refuse_open_unmapped(peer_last_loc: Tensor, lens: Tensor, page_size: int) -> None:
    """Refuse requests that would go on within a page whose second part is gone."""
    if not lens.numel() or int(peer_last_loc.min()) > 0:
        return
    lost = (lens % page_size != 0) & (peer_last_loc <= 0)
    if bool(lost.any()):
        request = int(lost.nonzero()[0])
        raise PoolError(
            f"request {request} of the batch goes on within a page "
            f"({int(lens[request])} tokens so far) that has no slots in the second pool",
            hint="its last page was given back too early, or never had a second part",
        )


def check_tail(seq_lens: Tensor, swa_tail_len: int, demand: Demand, page_size: int) -> None:
    """Refuse a sliding tail of several requests, of too many tokens, or that starts within a page."""
    if demand.batch != 1:
        raise PoolError(
            f"a sliding tail for a batch of {demand.batch}", hint="one request at a time"
        )
    if not 0 <= swa_tail_len <= demand.num_tokens:
        raise PoolError(f"a sliding tail of {swa_tail_len} of {demand.num_tokens} new tokens")
    start = int(seq_lens[0]) - swa_tail_len
    if swa_tail_len and start % page_size:
        raise PoolError(
            f"a sliding tail of {swa_tail_len} tokens starts at position {start}, "
            f"within a page of {page_size}",
            hint=f"make it {swa_tail_len + start % page_size} tokens long",
        )


def mapping_violations(
    mapping: Tensor, first: PagedAllocator, second: PagedAllocator, *, num_leaving: int
) -> list[str]:
    """Where the table disagrees with the two pools it joins.

    `num_leaving` pages of the second pool are handed out and mapped to by nothing.
    """
    page_size = first.page_size
    found = []
    if int(mapping[-1]) != -1 or bool(mapping[:page_size].any()) or int(mapping[:-1].min()) < 0:
        found.append("the mapping's padding or sentinel entries changed")
    slots = (mapping[:-1] > 0).nonzero().flatten()
    peers = mapping[slots]
    if bool((slots % page_size != peers % page_size).any()):
        found.append("mapped slots stand at different offsets of their pages")
    if torch.unique(peers).numel() != peers.numel():
        found.append("two slots map to one slot of the second pool")
    pages, peer = torch.unique(slots // page_size), torch.unique(peers // page_size)
    found += [
        f"page {page} is free and still mapped"
        for page in pages[torch.isin(pages, first.free_pages())].tolist()
    ]
    found += [
        f"page {page} of the second pool is free and still mapped to"
        for page in peer[torch.isin(peer, second.free_pages())].tolist()
    ]
    lost = second.num_pages - second.free_list.num_free - num_leaving - peer.numel()
    if lost:
        found.append(f"{lost} pages of the second pool are handed out and mapped to by nothing")
    return found
