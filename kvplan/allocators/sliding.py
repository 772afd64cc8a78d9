"""Two pools with ids of their own: full KV for all tokens, sliding KV for those in the window."""

from __future__ import annotations

import torch
from torch import Tensor

from kvplan.allocators.backend import Backend, unmapped_pages
from kvplan.allocators.demand import Demand
from kvplan.allocators.group import FreeGroup, joined, refuse_closed, refuse_nested
from kvplan.allocators.mapping import refuse_mapped, refuse_unmapped
from kvplan.allocators.paged import PagedAllocator
from kvplan.allocators.paired import PairedAllocator
from kvplan.allocators.token import TokenAllocator
from kvplan.allocators.two_sided import TwoSidedAllocator
from kvplan.units import ceil_div


class SlidingAllocator(PairedAllocator, TwoSidedAllocator):
    """Hands out full slots and maps each to a sliding slot; both sides or neither.

    `full_to_swa` is the paired table. The sliding side is unmapped at once, even in a group.
    """

    side_names = ("full", "sliding")

    def __init__(
        self,
        size: int,
        size_swa: int,
        page_size: int,
        *,
        device: torch.device | str = "cpu",
        need_sort: bool = False,
        backend: Backend | str = Backend.REFERENCE,
        checks: bool | None = None,
    ) -> None:
        super().__init__(
            page_size, device=device, need_sort=need_sort, backend=backend, checks=checks
        )
        self.resize(size, size_swa)

    @property
    def full(self) -> PagedAllocator:
        return self.first

    @property
    def swa(self) -> PagedAllocator:
        """The sliding side."""
        return self.second

    @property
    def full_to_swa(self) -> Tensor:
        """The sliding slot of each full slot; 0 unmapped, the last entry -1."""
        return self.table

    @property
    def size(self) -> int:
        return min(self.full.size, self.swa.size)

    @property
    def size_swa(self) -> int:
        """Sliding tokens of an empty pool."""
        return self.swa.size

    def resize(self, size: int, size_swa: int) -> None:
        """Start afresh with other sizes and a new table; nothing stays handed out."""
        self.start(size, size_swa)
        self.swa_group: FreeGroup | None = None

    def make_side(self, num_tokens: int) -> PagedAllocator:
        if self.page_size > 1:
            return super().make_side(num_tokens)
        return TokenAllocator(
            num_tokens, device=self.device, need_sort=self.need_sort, checks=self.checks
        )

    def clear(self) -> None:
        super().clear()
        self.swa_group = None

    def full_available_size(self) -> int:
        return self.full.available_size()

    def swa_available_size(self) -> int:
        return self.swa.available_size()

    def to_swa(self, slots: Tensor) -> Tensor:
        """The sliding slot of each full slot; 0 where it left the window, -1 for -1."""
        return self.table[slots]

    def try_extend_tail(
        self,
        prefix_lens: Tensor,
        seq_lens: Tensor,
        last_loc: Tensor,
        demand: Demand,
        swa_tail_len: int,
    ) -> Tensor | None:
        self.full.refuse_last_loc(last_loc, prefix_lens)
        swa_demand = (
            Demand(1, swa_tail_len, ceil_div(swa_tail_len, self.page_size))
            if swa_tail_len
            else None
        )
        if not self.has_room(demand, swa_demand):
            return None
        slots = self.full.extend(prefix_lens, seq_lens, last_loc, demand)
        if swa_demand:
            none = torch.zeros_like(seq_lens)
            swa_slots = self.swa.extend(none, none + swa_tail_len, none - 1, swa_demand)
            self.mapped(slots[-swa_tail_len:], swa_slots)
        return slots

    def try_decode(self, seq_lens: Tensor, last_loc: Tensor, demand: Demand) -> Tensor | None:
        self.full.refuse_last_loc(last_loc, seq_lens, new_tokens=1)
        swa_last_loc = self.last_peer(last_loc, seq_lens - 1)
        rooms = [side.has_room_to_decode(demand) for side in (self.full, self.swa)]
        if not all(rooms):
            return None
        return self.mapped(
            self.full.decode(seq_lens, last_loc, demand),
            self.swa.decode(seq_lens, swa_last_loc, demand),
        )

    def free(self, index: Tensor) -> None:
        # without pages every slot has its peer, or else the padding slot would be freed
        if self.page_size == 1 and index.numel():
            self.full.refuse_free(index)
            self.refuse_without_swa(index, hint="use free_full")
        super().free(index)

    def free_group_begin(self) -> None:
        refuse_nested(self.swa_group)
        self.swa_group = FreeGroup()
        self.full.free_group_begin()

    def free_group_end(self) -> None:
        group, self.swa_group = refuse_closed(self.swa_group), None
        if (pages := joined(group.pages)) is not None:
            self.swa.free_page_ids(pages)
        if (pages := joined(group.slots)) is not None:
            self.swa.free_page_ids(pages.sort().values)
        self.full.free_group_end()

    def release_swa(self, pages: Tensor, *, in_order: bool) -> None:
        swa_pages = unmapped_pages(self.backend, pages, self.table, self.page_size)
        in_order = in_order or self.page_size == 1
        if not in_order:
            swa_pages = swa_pages[swa_pages > 0].sort().values
        if self.swa_group is None:
            self.swa.free_page_ids(swa_pages)
        elif in_order:
            self.swa_group.add_pages(swa_pages)
        else:
            self.swa_group.add_slots(swa_pages)

    def refuse_without_swa(self, pages: Tensor, *, hint: str) -> None:
        if self.checks:
            refuse_unmapped(pages, self.table, self.page_size, hint=hint)

    def refuse_with_swa(self, index: Tensor) -> None:
        if self.checks:
            refuse_mapped(index, self.table)

    def num_unmapped(self) -> int:
        group = self.swa_group
        return sum(len(pages) for pages in (*group.slots, *group.pages)) if group else 0
