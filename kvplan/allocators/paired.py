"""Two paged pools whose pages go in step, and the table from slots of the first to the second's."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from kvplan.allocators.backend import Backend
from kvplan.allocators.base import Allocator
from kvplan.allocators.demand import Demand, check_token_count
from kvplan.allocators.mapping import (
    clear_mapping,
    mapping_violations,
    new_mapping,
    refuse_open_unmapped,
)
from kvplan.allocators.paged import PagedAllocator
from kvplan.allocators.room import room_for


class PairedAllocator(Allocator):
    """Hands out slots of `first`, each with a slot of `second`: both or neither.

    `table` is int64 (first size + page_size + 1,): 0 is unmapped, and the last entry is -1, so
    that a last_loc of -1 maps to -1. It stays the same tensor until a resize.
    """

    side_names: ClassVar[tuple[str, str]]

    first: PagedAllocator
    second: PagedAllocator
    table: Tensor

    def __init__(
        self,
        page_size: int,
        *,
        device: torch.device | str,
        need_sort: bool,
        backend: Backend | str,
        checks: bool | None,
    ) -> None:
        self.page_size = page_size
        self.device = torch.device(device)
        self.need_sort = need_sort
        self.backend = Backend(backend)
        self.checks = self.device.type == "cpu" if checks is None else checks

    def start(self, first_tokens: int, second_tokens: int) -> None:
        """Make both sides, nothing handed out; a refusal leaves what was there."""
        first, second = self.make_side(first_tokens), self.make_side(second_tokens)
        with room_for(f"{first_tokens} mapped tokens", self.device):
            table = new_mapping(first.size, self.page_size, self.device)
        self.first, self.second, self.table = first, second, table

    def make_side(self, num_tokens: int) -> PagedAllocator:
        """The allocator of one side."""
        return PagedAllocator(
            num_tokens,
            self.page_size,
            device=self.device,
            need_sort=self.need_sort,
            backend=self.backend,
            checks=self.checks,
        )

    @abstractmethod
    def num_unmapped(self) -> int:
        """Pages of the second side that are handed out and mapped to by nothing."""

    def clear(self) -> None:
        self.first.clear()
        self.second.clear()
        clear_mapping(self.table)

    def available_size(self) -> int:
        return min(self.first.available_size(), self.second.available_size())

    def merge_and_sort_free(self) -> None:
        self.first.merge_and_sort_free()
        self.second.merge_and_sort_free()

    def alloc(self, need_size: int) -> Tensor | None:
        check_token_count(need_size, self.page_size)
        if need_size > self.available_size():
            return None
        slots, peers = self.first.alloc(need_size), self.second.alloc(need_size)
        assert slots is not None
        assert peers is not None
        return self.mapped(slots, peers)

    def try_extend(
        self, prefix_lens: Tensor, seq_lens: Tensor, last_loc: Tensor, demand: Demand
    ) -> Tensor | None:
        self.first.refuse_last_loc(last_loc, prefix_lens)
        last_peer = self.last_peer(last_loc, prefix_lens)
        if not self.has_room(demand, demand):
            return None
        return self.mapped(
            self.first.extend(prefix_lens, seq_lens, last_loc, demand),
            self.second.extend(prefix_lens, seq_lens, last_peer, demand),
        )

    def mapped(self, slots: Tensor, peers: Tensor) -> Tensor:
        """The slots, with their peers entered in the table."""
        self.table.scatter_(0, slots, peers)
        return slots

    def last_peer(self, last_loc: Tensor, prefix_lens: Tensor) -> Tensor:
        """The second side's last_loc; refused where a request would go on in a page without one."""
        last_peer = self.table[last_loc]
        if self.checks:
            refuse_open_unmapped(last_peer, prefix_lens, self.page_size)
        return last_peer

    def has_room(self, first: Demand, second: Demand | None) -> bool:
        """Whether both sides have the pages of an extend; only then are staged ones merged.

        Without a demand the second side is left alone.
        """
        asked = [(self.first, first)] + ([(self.second, second)] if second else [])
        if any(demand.num_pages > side.free_list.num_free for side, demand in asked):
            return False
        return all(side.has_room_to_extend(demand) for side, demand in asked)

    def verify_accounting(self) -> list[str]:
        found = [
            f"{name} side: {text}"
            for name, side in zip(self.side_names, (self.first, self.second), strict=True)
            for text in side.verify_accounting()
        ]
        return found or mapping_violations(
            self.table, self.first, self.second, num_leaving=self.num_unmapped()
        )
