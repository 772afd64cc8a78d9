"""HiSparse: logical slots for all tokens, device slots for those that are kept there."""

from __future__ import annotations

import torch
from torch import Tensor

from kvplan.allocators.backend import Backend, unmapped_pages
from kvplan.allocators.base import Allocator
from kvplan.allocators.demand import check_token_count, demand_of
from kvplan.allocators.group import FreeGroup, refuse_closed, refuse_nested
from kvplan.allocators.mapping import (
    mapping_violations,
    new_mapping,
    refuse_open_unmapped,
)
from kvplan.allocators.paged import PagedAllocator
from kvplan.allocators.paging import slots_of
from kvplan.errors import PoolError
from kvplan.units import ceil_page


class SparseAllocator(Allocator):
    """`host_to_device_ratio` logical tokens for each device token.

    `logical_to_device` is int64 (logical size + page_size + 1,): 0 unmapped, the last entry -1.
    Frees are never deferred: the mapping must go at once. With `spec_scratch_tokens` each new
    request needs that many slots more, and each request a device buffer of
    `device_buffer_tokens` that its prefill fills first.
    """

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
        def side(num_tokens: int) -> PagedAllocator:
            return PagedAllocator(
                num_tokens,
                page_size,
                device=device,
                need_sort=need_sort,
                backend=backend,
                checks=checks,
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
        self.page_size = page_size
        self.host_to_device_ratio = host_to_device_ratio
        self.spec_scratch_tokens = spec_scratch_tokens
        self.device_buffer_tokens = device_buffer_tokens
        self.backend = Backend(backend)
        self.group: FreeGroup | None = None
        self.logical, self.device_side = side(size * host_to_device_ratio), side(size)
        self.device, self.checks = self.logical.device, self.logical.checks
        self._map_afresh()

    @property
    def size(self) -> int:
        return self.logical.size

    def resize(self, size: int) -> None:
        """Start afresh with another number of device tokens."""
        self.logical.resize(size * self.host_to_device_ratio)
        self.device_side.resize(size)
        self._map_afresh()

    def clear(self) -> None:
        self.logical.clear()
        self.device_side.clear()
        self._map_afresh()

    def available_size(self) -> int:
        return min(self.logical_available_size(), self.device_available_size())

    def logical_available_size(self) -> int:
        """Logical tokens that can be handed out."""
        return self.logical.available_size()

    def device_available_size(self) -> int:
        """Device slots that can be handed out."""
        return self.device_side.available_size()

    def merge_and_sort_free(self) -> None:
        self.logical.merge_and_sort_free()
        self.device_side.merge_and_sort_free()

    def to_device(self, slots: Tensor) -> Tensor:
        """The device slot of each logical slot; 0 where it has none, -1 for -1."""
        return self.logical_to_device[slots]

    def request_slot_reserve(self, *, holds_row: bool, prefill_tokens: int = 0) -> int:
        paged_prefill = ceil_page(prefill_tokens, self.page_size)
        buffer_reserve = max(self.device_buffer_tokens - paged_prefill, 0)
        if not self.spec_scratch_tokens:
            return 0
        return buffer_reserve + (0 if holds_row else self.spec_scratch_tokens)

    def alloc(self, need_size: int) -> Tensor | None:
        check_token_count(need_size, self.page_size)
        if need_size > self.available_size():
            return None
        slots, device_slots = self.logical.alloc(need_size), self.device_side.alloc(need_size)
        assert slots is not None
        assert device_slots is not None
        return self._mapped(slots, device_slots)

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
        self.logical.refuse_last_loc(last_loc, prefix_lens)
        device_last_loc = self.logical_to_device[last_loc]
        if self.checks:
            refuse_open_unmapped(device_last_loc, prefix_lens, self.page_size)
        sides = (self.logical, self.device_side)
        if any(demand.num_pages > side.free_list.num_free for side in sides):
            return None
        for side in sides:
            side.has_room_to_extend(demand)
        return self._mapped(
            self.logical.extend(prefix_lens, seq_lens, last_loc, demand),
            self.device_side.extend(prefix_lens, seq_lens, device_last_loc, demand),
        )

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
        return self.logical.alloc_extend(
            prefix_lens,
            seq_lens,
            last_loc,
            prefix_lens_cpu=prefix_lens_cpu,
            seq_lens_cpu=seq_lens_cpu,
        )

    def alloc_decode(
        self, seq_lens: Tensor, last_loc: Tensor, *, seq_lens_cpu: Tensor | None = None
    ) -> Tensor | None:
        """Logical slots only: the device side gets what is selected."""
        return self.logical.alloc_decode(seq_lens, last_loc, seq_lens_cpu=seq_lens_cpu)

    def alloc_device_buffer(self, index: Tensor, need_size: int) -> Tensor | None:
        """Turn the device pages of a request's slots into a buffer of `need_size` device slots.

        `index` are its slots from position 0 on; they are unmapped. Pages that lack are taken,
        pages too many go back. None: too few are free, and nothing changed.
        """
        check_token_count(need_size, self.page_size)
        self.logical.refuse_free(index)
        mapped = self.logical_to_device[index]
        pages = mapped[mapped > 0][:: self.page_size] // self.page_size
        num_pages = need_size // self.page_size
        num_new = max(0, num_pages - pages.numel())
        if not self.device_side.has_pages(num_new, at_most=num_new):
            return None
        self.logical_to_device[index] = 0
        self.device_side.free_page_ids(pages[num_pages:])
        pages = torch.cat((pages[:num_pages], self.device_side.take(num_new)))
        self.num_buffer_pages += num_pages
        return slots_of(pages, self.page_size).reshape(-1)

    def free_device_buffer(self, buffer: Tensor) -> None:
        """Give a device buffer back whole."""
        pages = buffer[:: self.page_size] // self.page_size
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

    def verify_accounting(self) -> list[str]:
        found = [f"logical side: {text}" for text in self.logical.verify_accounting()]
        found += [f"device side: {text}" for text in self.device_side.verify_accounting()]
        return found or mapping_violations(
            self.logical_to_device,
            self.logical,
            self.device_side,
            num_leaving=self.num_buffer_pages,
        )

    def _map_afresh(self) -> None:
        self.logical_to_device = new_mapping(self.logical.size, self.page_size, self.logical.device)
        self.num_buffer_pages = 0
        self.group = None

    def _mapped(self, slots: Tensor, device_slots: Tensor) -> Tensor:
        self.logical_to_device[slots] = device_slots
        return slots

    def _unmap(self, pages: Tensor) -> None:
        device_pages = unmapped_pages(self.backend, pages, self.logical_to_device, self.page_size)
        self.device_side.free_page_ids(device_pages[device_pages > 0].sort().values)
