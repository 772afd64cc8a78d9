"""Two pools with ids of their own: full KV for all tokens, sliding KV for those in the window."""

from __future__ import annotations

import torch
from torch import Tensor

from kvplan.allocators.backend import Backend, unmapped_pages
from kvplan.allocators.demand import (
    Demand,
    check_token_count,
    decode_demand,
    demand_of,
    on_host,
)
from kvplan.allocators.group import FreeGroup, joined, refuse_closed, refuse_nested
from kvplan.allocators.mapping import (
    check_tail,
    mapping_violations,
    new_mapping,
    refuse_mapped,
    refuse_open_unmapped,
    refuse_unmapped,
)
from kvplan.allocators.paged import PagedAllocator
from kvplan.allocators.token import TokenAllocator
from kvplan.allocators.two_sided import TwoSidedAllocator
from kvplan.units import ceil_div


class SlidingAllocator(TwoSidedAllocator):
    """Hands out full slots and maps each to a sliding slot; both sides or neither.

    `full_to_swa` is int64 (size_full + page_size + 1,): 0 is unmapped, and the last entry is -1,
    so that a last_loc of -1 maps to -1. The sliding side is unmapped at once, even in a group.
    """

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
        def side(num_tokens: int) -> PagedAllocator:
            if page_size == 1:
                return TokenAllocator(num_tokens, device=device, need_sort=need_sort, checks=checks)
            return PagedAllocator(
                num_tokens,
                page_size,
                device=device,
                need_sort=need_sort,
                backend=backend,
                checks=checks,
            )

        self.page_size = page_size
        self.backend = Backend(backend)
        self.swa_group: FreeGroup | None = None
        self.full, self.swa = side(size), side(size_swa)
        self.device, self.checks = self.full.device, self.full.checks
        self._map_afresh()

    @property
    def size(self) -> int:
        return min(self.full.size, self.swa.size)

    @property
    def size_swa(self) -> int:
        """Sliding tokens of an empty pool."""
        return self.swa.size

    def resize(self, size: int, size_swa: int) -> None:
        """Start afresh with other sizes; nothing stays handed out."""
        self.full.resize(size)
        self.swa.resize(size_swa)
        self._map_afresh()

    def clear(self) -> None:
        self.full.clear()
        self.swa.clear()
        self._map_afresh()

    def available_size(self) -> int:
        return min(self.full_available_size(), self.swa_available_size())

    def full_available_size(self) -> int:
        return self.full.available_size()

    def swa_available_size(self) -> int:
        return self.swa.available_size()

    def merge_and_sort_free(self) -> None:
        self.full.merge_and_sort_free()
        self.swa.merge_and_sort_free()

    def to_swa(self, slots: Tensor) -> Tensor:
        """The sliding slot of each full slot; 0 where it left the window, -1 for -1."""
        return self.full_to_swa[slots]

    def alloc(self, need_size: int) -> Tensor | None:
        check_token_count(need_size, self.page_size)
        if need_size > self.available_size():
            return None
        slots, swa_slots = self.full.alloc(need_size), self.swa.alloc(need_size)
        assert slots is not None
        assert swa_slots is not None
        return self._mapped(slots, swa_slots)

    def alloc_extend(
        self,
        prefix_lens: Tensor,
        seq_lens: Tensor,
        last_loc: Tensor,
        *,
        prefix_lens_cpu: Tensor | None = None,
        seq_lens_cpu: Tensor | None = None,
    ) -> Tensor | None:
        demand = demand_of(prefix_lens, seq_lens, prefix_lens_cpu, seq_lens_cpu, self.page_size)
        self.full.refuse_last_loc(last_loc, prefix_lens)
        swa_last_loc = self._swa_last_loc(last_loc, prefix_lens)
        if not self._has_room(demand, demand):
            return None
        return self._mapped(
            self.full.extend(prefix_lens, seq_lens, last_loc, demand),
            self.swa.extend(prefix_lens, seq_lens, swa_last_loc, demand),
        )

    def alloc_extend_swa_tail(
        self,
        prefix_lens: Tensor,
        seq_lens: Tensor,
        last_loc: Tensor,
        *,
        swa_tail_len: int,
        prefix_lens_cpu: Tensor | None = None,
        seq_lens_cpu: Tensor | None = None,
    ) -> Tensor | None:
        """`alloc_extend` of one request with sliding slots for its last `swa_tail_len` tokens only.

        The tail starts on a page: elsewhere its sliding slots would stand at other offsets.
        """
        demand = demand_of(prefix_lens, seq_lens, prefix_lens_cpu, seq_lens_cpu, self.page_size)
        check_tail(
            on_host(seq_lens, seq_lens_cpu, "seq_lens"), swa_tail_len, demand, self.page_size
        )
        self.full.refuse_last_loc(last_loc, prefix_lens)
        swa_demand = Demand(1, swa_tail_len, ceil_div(swa_tail_len, self.page_size))
        if not self._has_room(demand, swa_demand):
            return None
        slots = self.full.extend(prefix_lens, seq_lens, last_loc, demand)
        if swa_tail_len:
            none = torch.zeros_like(seq_lens)
            swa_slots = self.swa.extend(none, none + swa_tail_len, none - 1, swa_demand)
            self._mapped(slots[-swa_tail_len:], swa_slots)
        return slots

    def alloc_decode(
        self, seq_lens: Tensor, last_loc: Tensor, *, seq_lens_cpu: Tensor | None = None
    ) -> Tensor | None:
        demand = decode_demand(on_host(seq_lens, seq_lens_cpu, "seq_lens"), self.page_size)
        self.full.refuse_last_loc(last_loc, seq_lens, new_tokens=1)
        swa_last_loc = self._swa_last_loc(last_loc, seq_lens, new_tokens=1)
        rooms = [side.has_room_to_decode(demand) for side in (self.full, self.swa)]
        if not all(rooms):
            return None
        return self._mapped(
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
        swa_pages = unmapped_pages(self.backend, pages, self.full_to_swa, self.page_size)
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
            refuse_unmapped(pages, self.full_to_swa, self.page_size, hint=hint)

    def refuse_with_swa(self, index: Tensor) -> None:
        if self.checks:
            refuse_mapped(index, self.full_to_swa)

    def verify_accounting(self) -> list[str]:
        found = [f"full side: {text}" for text in self.full.verify_accounting()]
        found += [f"sliding side: {text}" for text in self.swa.verify_accounting()]
        return found or mapping_violations(
            self.full_to_swa, self.full, self.swa, num_leaving=self._num_leaving()
        )

    def _map_afresh(self) -> None:
        self.full_to_swa = new_mapping(self.full.size, self.page_size, self.device)
        self.swa_group = None

    def _mapped(self, slots: Tensor, swa_slots: Tensor) -> Tensor:
        self.full_to_swa[slots] = swa_slots
        return slots

    def _swa_last_loc(self, last_loc: Tensor, lens: Tensor, *, new_tokens: int = 0) -> Tensor:
        swa_last_loc = self.full_to_swa[last_loc]
        if self.checks:
            refuse_open_unmapped(swa_last_loc, lens - new_tokens, self.page_size)
        return swa_last_loc

    def _has_room(self, demand: Demand, swa_demand: Demand) -> bool:
        """Whether both sides have the pages; only then are staged ones merged."""
        if (
            demand.num_pages > self.full.free_list.num_free
            or swa_demand.num_pages > self.swa.free_list.num_free
        ):
            return False
        return self.full.has_room_to_extend(demand) and self.swa.has_room_to_extend(swa_demand)

    def _num_leaving(self) -> int:
        group = self.swa_group
        return sum(len(pages) for pages in (*group.slots, *group.pages)) if group else 0
