"""Single slots handed out from the head of one free list, for pools without pages."""

from __future__ import annotations

import torch
from torch import Tensor

from kvplan.allocators.base import check_segment_start
from kvplan.allocators.demand import Demand, check_token_count
from kvplan.allocators.paged import PagedAllocator


class TokenAllocator(PagedAllocator):
    """Slots 1 .. size; slot 0 is the padding slot. What is freed goes behind the free list."""

    def __init__(
        self,
        size: int,
        *,
        device: torch.device | str = "cpu",
        need_sort: bool = False,
        checks: bool | None = None,
    ) -> None:
        super().__init__(size, 1, device=device, need_sort=need_sort, checks=checks)

    def alloc(self, need_size: int) -> Tensor | None:
        check_token_count(need_size, 1)
        if not self.has_pages(need_size, at_most=need_size):
            return None
        return self.take(need_size).clone()

    def has_room_to_extend(self, demand: Demand) -> bool:
        return self.has_pages(demand.num_pages, at_most=demand.num_pages)

    def extend(
        self,
        prefix_lens: Tensor,  # noqa: ARG002  # a slot of its own per token: lengths say all
        seq_lens: Tensor,  # noqa: ARG002
        last_loc: Tensor,  # noqa: ARG002
        demand: Demand,
    ) -> Tensor:
        return self.take(demand.num_tokens).clone()

    def decode(self, seq_lens: Tensor, last_loc: Tensor, demand: Demand) -> Tensor:  # noqa: ARG002
        return self.take(demand.num_tokens).clone()

    def refuse_free(self, index: Tensor) -> None:
        self.refuse_pages(index)

    def distinct_pages(self, index: Tensor) -> Tensor:
        return index

    def free(self, index: Tensor) -> None:
        self.free_page_ids(index)

    def free_segment(self, index: Tensor, *, start_pos: int) -> None:
        check_segment_start(start_pos, 1)
        self.free_page_ids(index)

    def put_back(self, pages: Tensor) -> None:
        self.free_list.put_back(pages)
