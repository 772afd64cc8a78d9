"""How slots with a full and a sliding part are given back."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from kvplan.allocators.base import Allocator, SlidingEvictable, check_segment_start
from kvplan.allocators.demand import Demand, demand_of, on_host
from kvplan.allocators.mapping import check_tail
from kvplan.allocators.paged import PagedAllocator


class TailAllocator(Allocator):
    """Slots of which the last ones alone may have a sliding part."""

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
        host_lens = on_host(seq_lens, seq_lens_cpu, "seq_lens")
        check_tail(host_lens, swa_tail_len, demand, self.page_size)
        return self.try_extend_tail(prefix_lens, seq_lens, last_loc, demand, swa_tail_len)

    @abstractmethod
    def try_extend_tail(
        self,
        prefix_lens: Tensor,
        seq_lens: Tensor,
        last_loc: Tensor,
        demand: Demand,
        swa_tail_len: int,
    ) -> Tensor | None:
        """`alloc_extend_swa_tail` of a batch whose demand is counted."""


class TwoSidedAllocator(TailAllocator):
    """`full` owns the slots; what becomes of their sliding part is the subclass's."""

    @property
    @abstractmethod
    def full(self) -> PagedAllocator:
        """The side that owns the slots."""

    @abstractmethod
    def full_available_size(self) -> int:
        """Tokens that the full side can still hand out."""

    @abstractmethod
    def swa_available_size(self) -> int:
        """Tokens that the sliding side can still hand out."""

    @abstractmethod
    def release_swa(self, pages: Tensor, *, in_order: bool) -> None:
        """Give the sliding part of full pages back, those that have one; in this order or sorted."""

    @abstractmethod
    def refuse_without_swa(self, pages: Tensor, *, hint: str) -> None:
        """Refuse full pages whose sliding part went before."""

    @abstractmethod
    def refuse_with_swa(self, index: Tensor) -> None:
        """Refuse slots that still have a sliding part, which would be lost."""

    def free(self, index: Tensor) -> None:
        """Give back both sides; a page whose sliding part went before gives back the full one."""
        if index.numel():
            self.full.refuse_free(index)
            self.release_swa(self.full.distinct_pages(index), in_order=False)
            self.full.free(index)

    def free_segment(self, index: Tensor, *, start_pos: int) -> None:
        check_segment_start(start_pos, self.page_size)
        self.free_page_ids(self.full.segment_pages(index))

    def free_page_ids(self, page_ids: Tensor) -> None:
        """Give back both sides of full pages that all have a sliding part."""
        if page_ids.numel():
            self.full.refuse_pages(page_ids)
            self.refuse_without_swa(page_ids, hint="use free_full or free_full_segment")
            self.release_swa(page_ids, in_order=True)
            self.full.free_page_ids(page_ids)

    def free_swa(self, index: Tensor) -> None:
        """Give back the sliding part of the pages of slots that left the window."""
        if index.numel():
            self.full.refuse_free(index)
            pages = self.full.distinct_pages(index)
            self.refuse_without_swa(pages, hint="it goes back once")
            self.release_swa(pages, in_order=False)

    def free_swa_segment(self, index: Tensor, *, start_pos: int) -> None:
        """`free_swa` of positions `start_pos ..` of one row."""
        check_segment_start(start_pos, self.page_size)
        if index.numel():
            pages = self.full.segment_pages(index)
            self.full.refuse_pages(pages)
            self.refuse_without_swa(pages, hint="it goes back once")
            self.release_swa(pages, in_order=True)

    def free_full(self, index: Tensor) -> None:
        if index.numel():
            self.full.refuse_free(index)
            self.refuse_with_swa(index)
            self.full.free(index)

    def free_full_segment(self, index: Tensor, *, start_pos: int) -> None:
        check_segment_start(start_pos, self.page_size)
        if index.numel():
            self.full.refuse_pages(self.full.segment_pages(index))
            self.refuse_with_swa(index)
            self.full.free_segment(index, start_pos=start_pos)

    def evict_to_free_tokens(self, cache: SlidingEvictable | None, num_tokens: int) -> bool:  # type: ignore[override]  # a cache over two pools evicts per side
        while cache is not None and self.available_size() < num_tokens:
            before = self.full_available_size(), self.swa_available_size()
            cache.evict(*(max(0, num_tokens - available) for available in before))
            # one side may grow before the other does: leaves can have lost their sliding part
            if before == (self.full_available_size(), self.swa_available_size()):
                break
        return self.available_size() >= num_tokens
