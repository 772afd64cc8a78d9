"""Full pages for all tokens, and a fixed ring of sliding slots a request row."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from kvplan.allocators.backend import Backend
from kvplan.allocators.base import check_segment_start
from kvplan.allocators.demand import Demand
from kvplan.allocators.paged import PagedAllocator
from kvplan.allocators.two_sided import TailAllocator
from kvplan.errors import PoolError
from kvplan.units import ceil_page


class RowCount(Protocol):
    """Request rows: their number is what bounds the sliding side."""

    def available_size(self) -> int: ...


class RingAllocator(PagedAllocator, TailAllocator):
    """A row's last `ring_size` tokens reuse the row's own slots: only full pages are allocated.

    The sliding side counts in rows (`rows * ring_cost`) and never limits token growth, so a
    sliding tail or a free of the sliding part changes nothing.
    """

    def __init__(
        self,
        size: int,
        page_size: int,
        *,
        ring_size: int,
        rows: RowCount,
        device: torch.device | str = "cpu",
        need_sort: bool = False,
        backend: Backend | str = Backend.REFERENCE,
        checks: bool | None = None,
    ) -> None:
        super().__init__(
            size, page_size, device=device, need_sort=need_sort, backend=backend, checks=checks
        )
        if ring_size < 1:
            raise PoolError(f"a ring of {ring_size} tokens", hint="the window is 1 token or more")
        self.ring_cost = ceil_page(ring_size, page_size)
        self.rows = rows
        self.size_swa = self.swa_available_size()

    def swa_available_size(self) -> int:
        """Sliding tokens of the rows that are free."""
        return self.rows.available_size() * self.ring_cost

    def full_available_size(self) -> int:
        """Tokens that the full side can still hand out."""
        return self.available_size()

    def try_extend_tail(
        self,
        prefix_lens: Tensor,
        seq_lens: Tensor,
        last_loc: Tensor,
        demand: Demand,
        swa_tail_len: int,  # noqa: ARG002  # the request's ring is there already
    ) -> Tensor | None:
        return self.try_extend(prefix_lens, seq_lens, last_loc, demand)

    def free_swa(self, index: Tensor) -> None:
        """Nothing goes back before the row does; slots that aren't owned are refused."""
        self.refuse_free(index)

    def free_swa_segment(self, index: Tensor, *, start_pos: int) -> None:
        """As `free_swa`."""
        check_segment_start(start_pos, self.page_size)
        self.refuse_free(index)
