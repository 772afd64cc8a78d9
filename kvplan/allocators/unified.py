"""Full, sliding and state pools in one byte buffer, behind one space of virtual slots."""

from __future__ import annotations

import torch
from torch import Tensor

from kvplan.allocators.backend import Backend
from kvplan.allocators.band import Band, BandSpec, refuse_bound, refuse_unbound
from kvplan.allocators.demand import Demand, check_token_count
from kvplan.allocators.mapping import refuse_open_unmapped
from kvplan.allocators.paged import PagedAllocator
from kvplan.allocators.paging import slots_of
from kvplan.allocators.room import room_for
from kvplan.allocators.shared_buffer import Mover, SharedBuffer
from kvplan.allocators.state_band import StateBand
from kvplan.allocators.two_sided import TwoSidedAllocator
from kvplan.allocators.virtual_pages import VirtualPages
from kvplan.errors import PoolError
from kvplan.units import ceil_div, ceil_page

FULL, SWA, STATE = "full", "swa", "state"


class UnifiedAllocator(TwoSidedAllocator):
    """Hands out virtual slots; each sub-pool has its own table from virtual to physical pages.

    From the low end: state slots, then sliding pages, then the gap, then full pages down from the
    end. `swa_token_bytes` or `state_slot_bytes` of 0 leave that pool out; `state_slots` is the
    allocator of the states. What is available is what the gap holds with every hole closed:
    `move` is called with the pages to copy when an allocation needs that. The sliding side is
    unbound at once, even in a free group. Over `num_ranks` context parallel ranks a page holds
    `page_size` tokens of each, and the bytes are those of one rank.
    """

    def __init__(
        self,
        total_bytes: int,
        page_size: int,
        *,
        full_token_bytes: int,
        swa_token_bytes: int = 0,
        state_slot_bytes: int = 0,
        num_ranks: int = 1,
        device: torch.device | str = "cpu",
        backend: Backend | str = Backend.REFERENCE,
        checks: bool | None = None,
        move: Mover | None = None,
    ) -> None:
        if min(swa_token_bytes, state_slot_bytes) < 0 or not swa_token_bytes + state_slot_bytes:
            raise PoolError(
                f"{swa_token_bytes} sliding and {state_slot_bytes} state bytes beside the full pool",
                hint="one of them shares the buffer, else take the paged allocator",
            )
        if page_size < 1:
            raise PoolError(f"a page of {page_size} tokens", hint="pages hold 1 token or more")
        self.page_size = page_size * num_ranks
        self.device = torch.device(device)
        self.backend = Backend(backend)
        self.checks = self.device.type == "cpu" if checks is None else checks
        self._move = move
        specs = [
            BandSpec(STATE, state_slot_bytes),
            BandSpec(SWA, swa_token_bytes * page_size),
            BandSpec(FULL, full_token_bytes * page_size),
        ]
        self._specs = [spec for spec in specs if spec.page_bytes or spec.name == FULL]
        self._paged = [spec.name for spec in self._specs if spec.name != STATE]
        self.resize(total_bytes)

    def resize(self, total_bytes: int) -> None:
        """Start afresh in a buffer of another size; nothing stays handed out."""
        with room_for(f"a shared buffer of {total_bytes} bytes", self.device):
            shared = SharedBuffer(self._specs, total_bytes, device=self.device, move=self._move)
        band = shared.bands[FULL]
        full = VirtualPages(
            band,
            shared.most(FULL, limit=band.num_pages, empty=True),
            self.page_size,
            device=self.device,
            backend=self.backend,
            checks=self.checks,
        )
        states = (
            StateBand(shared, STATE, device=self.device, checks=self.checks)
            if STATE in shared.bands
            else None
        )
        self.shared, self.virtual, self.state_slots = shared, full, states
        self.swa: Band | None = shared.bands.get(SWA)

    @property
    def full(self) -> PagedAllocator:
        """The virtual slots, whose pages have full memory while they are handed out."""
        return self.virtual

    @property
    def table_bytes(self) -> int:
        """Bytes of the page tables both ways and of the free lists, on the device and nothing moved."""
        tables = sum(
            table.nbytes
            for band in self.shared.bands.values()
            for table in (band.virtual_to_physical, band.physical_to_virtual)
        )
        free = self.virtual.num_pages + (0 if self.state_slots is None else self.state_slots.size)
        return tables + free * torch.int64.itemsize

    def clear(self) -> None:
        self.full.clear()
        if self.state_slots is not None:
            self.state_slots.clear()
        self.shared.clear()

    @property
    def size(self) -> int:
        num_pages = self.shared.most(*self._paged, limit=self.full.num_pages, empty=True)
        return num_pages * self.page_size

    def available_size(self) -> int:
        return self._most(*self._paged, limit=self.full.free_list.num_free)

    def full_available_size(self) -> int:
        return self._most(FULL, limit=self.full.free_list.num_free)

    def swa_available_size(self) -> int:
        """Tokens that the sliding side can still hold; the full side's where nothing slides."""
        if self.swa is None:
            return self.full_available_size()
        return self._most(SWA, limit=self.swa.num_pages)

    def merge_and_sort_free(self) -> None:
        """Nothing waits: virtual ids need no order, and holes are filled from the base."""

    def compact(self) -> int:
        """Close every hole now; how many pages moved."""
        return self.shared.compact()

    def to_full(self, slots: Tensor) -> Tensor:
        """Physical slots in the full pool; what is unbound leads into the padding page."""
        return self.shared.bands[FULL].translate(slots, self.page_size)

    def to_swa(self, slots: Tensor) -> Tensor:
        """Physical slots in the sliding pool; what left the window leads into the padding page."""
        assert self.swa is not None, "this buffer has no sliding pool"
        return self.swa.translate(slots, self.page_size)

    def alloc(self, need_size: int) -> Tensor | None:
        check_token_count(need_size, self.page_size)
        num_pages = need_size // self.page_size
        if not self._make_room(num_pages, num_pages):
            return None
        pages = self.full.take(num_pages)
        self._bind(pages, num_pages)
        return slots_of(pages, self.page_size).reshape(-1)

    def try_extend(
        self, prefix_lens: Tensor, seq_lens: Tensor, last_loc: Tensor, demand: Demand
    ) -> Tensor | None:
        self._refuse_last_loc(last_loc, prefix_lens)
        return self._extend(prefix_lens, seq_lens, last_loc, demand, demand.num_pages)

    def try_extend_tail(
        self,
        prefix_lens: Tensor,
        seq_lens: Tensor,
        last_loc: Tensor,
        demand: Demand,
        swa_tail_len: int,
    ) -> Tensor | None:
        self.full.refuse_last_loc(last_loc, prefix_lens)
        num_swa = ceil_div(swa_tail_len, self.page_size)
        return self._extend(prefix_lens, seq_lens, last_loc, demand, num_swa)

    def try_decode(self, seq_lens: Tensor, last_loc: Tensor, demand: Demand) -> Tensor | None:
        self._refuse_last_loc(last_loc, seq_lens, new_tokens=1)
        if not self._make_room(demand.num_pages, demand.num_pages):
            return None
        self._bind(self.full.free_list.peek(demand.num_pages), demand.num_pages)
        return self.full.decode(seq_lens, last_loc, demand)

    def free_group_begin(self) -> None:
        self.full.free_group_begin()

    def free_group_end(self) -> None:
        self.full.free_group_end()

    def max_new_tokens_for_memory(
        self, input_tokens: int, max_new_tokens: int, *, token_capacity: int
    ) -> int | None:
        if ceil_page(input_tokens, self.page_size) > self.size:
            return None
        return super().max_new_tokens_for_memory(
            input_tokens, max_new_tokens, token_capacity=min(token_capacity, self.size)
        )

    def prealloc_ceiling_fits(self, full_tokens: int, swa_tokens: int = 0) -> bool:
        return self.shared.fits(self._demand(full_tokens, swa_tokens), empty=True)

    def prealloc_fits(
        self,
        full_tokens: int,
        swa_tokens: int = 0,
        *,
        full_budget_tokens: int,
        swa_budget_tokens: int | None = None,
    ) -> bool:
        """Both sides priced in bytes: what a budget holds back is part of the demand."""
        full_tokens += max(0, self.full_available_size() - full_budget_tokens)
        if swa_budget_tokens is not None:
            swa_tokens += max(0, self.swa_available_size() - swa_budget_tokens)
        return self.shared.fits(self._demand(full_tokens, swa_tokens))

    def release_swa(self, pages: Tensor, *, in_order: bool) -> None:  # noqa: ARG002  # holes have no order
        if self.swa is not None:
            self.swa.unbind(pages[self.swa.is_bound(pages)])

    def refuse_without_swa(self, pages: Tensor, *, hint: str) -> None:
        if self.swa is not None and self.checks:
            refuse_unbound(self.swa, pages, self.page_size, hint=hint)

    def refuse_with_swa(self, index: Tensor) -> None:
        if self.swa is not None and self.checks:
            refuse_bound(self.swa, index, self.page_size)

    def verify_accounting(self) -> list[str]:
        found = self.full.verify_accounting() + self.shared.verify_accounting()
        if self.state_slots is not None:
            found += self.state_slots.verify_accounting()
        if self.swa is not None:
            pages = self.swa.virtual_to_physical.nonzero().flatten()
            lost = pages[~self.shared.bands[FULL].is_bound(pages)].tolist()
            found += [f"page {page} has a sliding part and no full one" for page in lost]
        return found

    def _extend(
        self,
        prefix_lens: Tensor,
        seq_lens: Tensor,
        last_loc: Tensor,
        demand: Demand,
        num_swa_pages: int,
    ) -> Tensor | None:
        if not self._make_room(demand.num_pages, num_swa_pages):
            return None
        self._bind(self.full.free_list.peek(demand.num_pages), num_swa_pages)
        return self.full.extend(prefix_lens, seq_lens, last_loc, demand)

    def _make_room(self, num_pages: int, num_swa_pages: int) -> bool:
        return num_pages <= self.full.free_list.num_free and self.shared.make_room(
            self._pages(num_pages, num_swa_pages)
        )

    def _bind(self, pages: Tensor, num_swa_pages: int) -> None:
        """Give virtual pages memory, the last `num_swa_pages` of them on both sides."""
        self.shared.bands[FULL].bind(pages)
        if self.swa is not None:
            self.swa.bind(pages[pages.numel() - num_swa_pages :])

    def _refuse_last_loc(self, last_loc: Tensor, lens: Tensor, *, new_tokens: int = 0) -> None:
        self.full.refuse_last_loc(last_loc, lens, new_tokens=new_tokens)
        if self.swa is not None and self.checks:
            swa_pages = self.swa.virtual_to_physical[last_loc // self.page_size]
            refuse_open_unmapped(swa_pages, lens - new_tokens, self.page_size)

    def _most(self, *names: str, limit: int) -> int:
        return self.shared.most(*names, limit=limit) * self.page_size

    def _demand(self, full_tokens: int, swa_tokens: int) -> dict[str, int]:
        return self._pages(
            ceil_div(full_tokens, self.page_size), ceil_div(swa_tokens, self.page_size)
        )

    def _pages(self, num_pages: int, num_swa_pages: int) -> dict[str, int]:
        return {FULL: num_pages} | ({} if self.swa is None else {SWA: num_swa_pages})
