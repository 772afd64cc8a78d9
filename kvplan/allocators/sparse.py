"""HiSparse: logical slots for all tokens, device slots for those that are kept there."""

from __future__ import annotations

import torch
from torch import Tensor

from kvplan.allocators.backend import Backend, unmapped_pages
from kvplan.allocators.demand import Demand, check_token_count, demand_of
from kvplan.allocators.group import FreeGroup, refuse_closed, refuse_nested
from kvplan.allocators.mapping import peer_pages
from kvplan.allocators.paged import PagedAllocator
from kvplan.allocators.paging import slots_of
from kvplan.allocators.paired import PairedAllocator
from kvplan.errors import PoolError
from kvplan.kernels.paging import page_of
from kvplan.units import ceil_page


class SparseAllocator(PairedAllocator):
    """`host_to_device_ratio` logical tokens for each device token.

    `logical_to_device` is the paired table. Frees are never deferred: the mapping must go at
    once. With `spec_scratch_tokens` each new request needs that many slots more, and each request
    a device buffer of `device_buffer_tokens` that its prefill fills first.
    """

    side_names = ("logical", "device")

    def __init__(
        self,
        size: int,
        page_size: int,
        *,
        host_to_device_ratio: int = 2,
        spec_scratch_tokens: int = 0,
        device_buffer_tokens: int = 0,
        device: torch.device | str = "cpu",
        need_sort: bool = False,
        backend: Backend | str = Backend.REFERENCE,
        checks: bool | None = None,
    ) -> None:
        super().__init__(
            page_size, device=device, need_sort=need_sort, backend=backend, checks=checks
        )
        if host_to_device_ratio < 1:
            raise PoolError(
                f"{host_to_device_ratio} logical tokens a device token", hint="1 or more"
            )
        for name, tokens in (
            ("spec_scratch_tokens", spec_scratch_tokens),
            ("device_buffer_tokens", device_buffer_tokens),
        ):
            if tokens < 0 or tokens % page_size:
                raise PoolError(
                    f"{name} is {tokens}", hint=f"a multiple of the page size, {page_size}"
                )
        self.host_to_device_ratio = host_to_device_ratio
        self.spec_scratch_tokens = spec_scratch_tokens
        self.device_buffer_tokens = device_buffer_tokens
        self.resize(size)

    @property
    def logical(self) -> PagedAllocator:
        """The logical side, which owns the slots that are handed out."""
        return self.first

    @property
    def device_side(self) -> PagedAllocator:
        """The device slots."""
        return self.second

    @property
    def logical_to_device(self) -> Tensor:
        """The device slot of each logical slot; 0 unmapped, the last entry -1."""
        return self.table

    @property
    def size(self) -> int:
        return self.logical.size

    def resize(self, size: int) -> None:
        """Start afresh with another number of device tokens and a new table."""
        self.start(size * self.host_to_device_ratio, size)
        self.num_buffer_pages = 0
        self.group: FreeGroup | None = None

    def clear(self) -> None:
        super().clear()
        self.num_buffer_pages = 0
        self.group = None

    def logical_available_size(self) -> int:
        """Logical tokens that can be handed out."""
        return self.logical.available_size()

    def device_available_size(self) -> int:
        """Device slots that can be handed out."""
        return self.device_side.available_size()

    def to_device(self, slots: Tensor) -> Tensor:
        """The device slot of each logical slot; 0 where it has none, -1 for -1."""
        return self.table[slots]

    def request_slot_reserve(self, *, holds_row: bool, prefill_tokens: int = 0) -> int:
        if not self.spec_scratch_tokens:
            return 0
        paged_prefill = ceil_page(prefill_tokens, self.page_size)
        buffer_reserve = max(self.device_buffer_tokens - paged_prefill, 0)
        return buffer_reserve + (0 if holds_row else self.spec_scratch_tokens)

    def alloc_logical_only(
        self,
        prefix_lens: Tensor,
        seq_lens: Tensor,
        last_loc: Tensor,
        *,
        prefix_lens_cpu: Tensor | None = None,
        seq_lens_cpu: Tensor | None = None,
    ) -> Tensor | None:
        """`alloc_extend` without device slots."""
        demand = demand_of(prefix_lens, seq_lens, prefix_lens_cpu, seq_lens_cpu, self.page_size)
        return self.logical.try_extend(prefix_lens, seq_lens, last_loc, demand)

    def try_decode(self, seq_lens: Tensor, last_loc: Tensor, demand: Demand) -> Tensor | None:
        """Logical slots only: the device side gets what is selected."""
        return self.logical.try_decode(seq_lens, last_loc, demand)

    def alloc_device_buffer(self, index: Tensor, need_size: int) -> Tensor | None:
        """Turn the device pages of a request's slots into a buffer of `need_size` device slots.

        `index` are its slots from position 0 on; their pages are unmapped. Device pages that lack
        are taken, pages too many go back. None: too few are free, and nothing changed.
        """
        check_token_count(need_size, self.page_size)
        self.logical.refuse_free(index)
        logical_pages = torch.unique_consecutive(page_of(index, self.page_size))
        pages = peer_pages(logical_pages, self.table, self.page_size)
        pages = pages[pages > 0]
        num_pages = need_size // self.page_size
        num_new = max(0, num_pages - pages.numel())
        if not self.device_side.has_pages(num_new, at_most=num_new):
            return None
        unmapped_pages(self.backend, logical_pages, self.table, self.page_size)
        self.device_side.free_page_ids(pages[num_pages:])
        pages = torch.cat((pages[:num_pages], self.device_side.take(num_new)))
        self.num_buffer_pages += num_pages
        return slots_of(pages, self.page_size).reshape(-1)

    def free_device_buffer(self, buffer: Tensor) -> None:
        """Give a device buffer back whole."""
        pages = page_of(buffer[:: self.page_size], self.page_size)
        self.device_side.free_page_ids(pages)
        self.num_buffer_pages -= pages.numel()

    def free(self, index: Tensor) -> None:
        if not index.numel():
            return
        self.logical.refuse_free(index)
        self._unmap(self.logical.distinct_pages(index))
        self.logical.free(index)

    def free_page_ids(self, page_ids: Tensor) -> None:
        if not page_ids.numel():
            return
        self.logical.refuse_pages(page_ids)
        self._unmap(page_ids)
        self.logical.free_page_ids(page_ids)

    def free_group_begin(self) -> None:
        """Open a group in which frees go at once: the mapping cannot wait."""
        refuse_nested(self.group)
        self.group = FreeGroup()

    def free_group_end(self) -> None:
        refuse_closed(self.group)
        self.group = None

    def num_unmapped(self) -> int:
        return self.num_buffer_pages

    def _unmap(self, pages: Tensor) -> None:
        device_pages = unmapped_pages(self.backend, pages, self.table, self.page_size)
        self.device_side.free_page_ids(device_pages[device_pages > 0].sort().values)
