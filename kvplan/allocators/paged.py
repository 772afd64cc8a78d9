"""Whole pages handed out from the head of one free list."""

from __future__ import annotations

import torch
from torch import Tensor

from kvplan.allocators.backend import Backend, decode_slots, extend_slots
from kvplan.allocators.base import Allocator, check_segment_start
from kvplan.allocators.demand import Demand, check_token_count
from kvplan.allocators.free_list import FreeList
from kvplan.allocators.group import FreeGroup, joined, refuse_closed, refuse_nested
from kvplan.allocators.ledger import FREE, OWNED, PAGES_LEAVING, SLOTS_LEAVING, Ledger
from kvplan.allocators.paging import check_ids, slots_of
from kvplan.allocators.room import room_for
from kvplan.errors import PoolError
from kvplan.kernels.paging import page_of


def page_count(num_tokens: int, page_size: int) -> int:
    """Pages of a pool size; refused where the two do not go together."""
    if page_size < 1:
        raise PoolError(f"a page of {page_size} tokens", hint="pages hold 1 token or more")
    if num_tokens < 0 or num_tokens % page_size:
        raise PoolError(
            f"a pool of {num_tokens} tokens is no whole number of pages of {page_size}",
            hint=f"use {max(0, num_tokens) // page_size * page_size}",
        )
    return num_tokens // page_size


class PagedAllocator(Allocator):
    """Pages 1 .. size // page_size; page 0 is the padding page.

    A free goes before the free list, or with `need_sort` waits staged until an allocation runs
    short. `checks` keeps a ledger of owned pages that refuses double frees and foreign slots; by
    default it is off on a GPU, where each check waits for the device.
    """

    group: FreeGroup | None

    def __init__(
        self,
        size: int,
        page_size: int,
        *,
        device: torch.device | str = "cpu",
        need_sort: bool = False,
        backend: Backend | str = Backend.REFERENCE,
        checks: bool | None = None,
    ) -> None:
        self.page_size = page_size
        self.device = torch.device(device)
        self.need_sort = need_sort
        self.backend = Backend(backend)
        self.checks = self.device.type == "cpu" if checks is None else checks
        self.resize(size)

    @property
    def size(self) -> int:
        return self.num_pages * self.page_size

    def resize(self, size: int) -> None:
        """Start afresh with another size; nothing stays handed out."""
        self._start(page_count(size, self.page_size))

    def clear(self) -> None:
        self._start(self.num_pages)

    def available_size(self) -> int:
        return self.free_list.num_free * self.page_size

    def merge_and_sort_free(self) -> None:
        self.free_list.merge_and_sort()

    def alloc(self, need_size: int) -> Tensor | None:
        check_token_count(need_size, self.page_size)
        num_pages = need_size // self.page_size
        if not self.has_pages(num_pages, at_most=num_pages):
            return None
        pages = self.take(num_pages)
        return slots_of(pages, self.page_size).reshape(-1)

    def try_extend(
        self, prefix_lens: Tensor, seq_lens: Tensor, last_loc: Tensor, demand: Demand
    ) -> Tensor | None:
        self.refuse_last_loc(last_loc, prefix_lens)
        if not self.has_room_to_extend(demand):
            return None
        return self.extend(prefix_lens, seq_lens, last_loc, demand)

    def try_decode(self, seq_lens: Tensor, last_loc: Tensor, demand: Demand) -> Tensor | None:
        self.refuse_last_loc(last_loc, seq_lens, new_tokens=1)
        if not self.has_room_to_decode(demand):
            return None
        return self.decode(seq_lens, last_loc, demand)

    def has_room_to_extend(self, demand: Demand) -> bool:
        """Whether the pages of an extend are there, merged first where a quick bound says short."""
        bound = demand.num_tokens // self.page_size + demand.batch + 1
        return self.has_pages(demand.num_pages, at_most=bound)

    def has_room_to_decode(self, demand: Demand) -> bool:
        """Whether the pages of a decode are there, merged first where the batch exceeds the list."""
        return self.has_pages(demand.num_pages, at_most=demand.batch)

    def has_pages(self, num_pages: int, *, at_most: int) -> bool:
        """Whether `num_pages` can be taken; staged pages are merged when fewer than `at_most` can."""
        if at_most > len(self.free_list):
            self.free_list.merge_and_sort()
        return num_pages <= len(self.free_list)

    def extend(
        self, prefix_lens: Tensor, seq_lens: Tensor, last_loc: Tensor, demand: Demand
    ) -> Tensor:
        """The slots of an extend that has room."""
        return extend_slots(
            self.backend,
            prefix_lens,
            seq_lens,
            last_loc,
            self.take(demand.num_pages),
            self.page_size,
            num_tokens=demand.num_tokens,
        )

    def decode(self, seq_lens: Tensor, last_loc: Tensor, demand: Demand) -> Tensor:
        """The slots of a decode that has room."""
        pages = self.take(demand.num_pages)
        return decode_slots(self.backend, seq_lens, last_loc, pages, self.page_size)

    def take(self, num_pages: int) -> Tensor:
        """Own the first pages of the free list; use the ids before anything is freed."""
        pages = self.free_list.take(num_pages)
        if self.ledger is not None:
            self.ledger.mark(pages, OWNED)
        return pages

    def free(self, index: Tensor) -> None:
        if not index.numel():
            return
        self.refuse_free(index)
        if self.group is None:
            self._release(self.distinct_pages(index))
        else:
            pages = page_of(index, self.page_size)
            self.group.add_slots(pages)
            self._mark(pages, SLOTS_LEAVING)

    def free_segment(self, index: Tensor, *, start_pos: int) -> None:
        check_segment_start(start_pos, self.page_size)
        self.free_page_ids(self.segment_pages(index))

    def free_page_ids(self, page_ids: Tensor) -> None:
        if not page_ids.numel():
            return
        self.refuse_pages(page_ids)
        if self.group is None:
            self._release(page_ids)
        else:
            self.group.add_pages(page_ids)
            self._mark(page_ids, PAGES_LEAVING)

    def distinct_pages(self, index: Tensor) -> Tensor:
        """The pages of any slots, each once."""
        pages: Tensor = torch.unique(page_of(index, self.page_size))
        return pages

    def segment_pages(self, index: Tensor) -> Tensor:
        """The page of every page_size-th slot of a segment: each page once, without looking."""
        check_ids("index", index)
        pages = page_of(index[:: self.page_size], self.page_size)
        if self.ledger is not None:
            refuse_scattered(index, pages, self.page_size)
        return pages

    def refuse_free(self, index: Tensor) -> None:
        """Refuse slots that aren't owned; frees within a group may share pages."""
        check_ids("index", index)
        if self.ledger is not None and index.numel():
            self.ledger.refuse_slots(index, leaving=self.group is not None)

    def refuse_pages(self, page_ids: Tensor) -> None:
        """Refuse pages that aren't owned or that come twice."""
        check_ids("page_ids", page_ids)
        if self.ledger is not None and page_ids.numel():
            self.ledger.refuse_pages(page_ids)

    def refuse_last_loc(self, last_loc: Tensor, lens: Tensor, *, new_tokens: int = 0) -> None:
        """Refuse a last_loc that isn't where `lens - new_tokens` tokens end."""
        check_ids("last_loc", last_loc)
        if last_loc.shape != lens.shape:
            raise PoolError(f"{last_loc.numel()} last slots for {lens.numel()} lengths")
        if self.ledger is not None:
            self.ledger.refuse_open_pages(last_loc, lens - new_tokens)

    def free_group_begin(self) -> None:
        refuse_nested(self.group)
        self.group = FreeGroup()

    def free_group_end(self) -> None:
        group, self.group = refuse_closed(self.group), None
        if (pages := joined(group.slots)) is not None:
            self._release(torch.unique(pages))
        if (pages := joined(group.pages)) is not None:
            self._release(pages)

    def put_back(self, pages: Tensor) -> None:
        """Where a free goes at once: before the list, so that warm pages go out next."""
        self.free_list.put_front(pages)

    def free_pages(self) -> Tensor:
        """Every free page, staged ones last."""
        return self.free_list.ids()

    def verify_accounting(self) -> list[str]:
        pages = self.free_pages()
        found = list_violations(pages, 1, self.num_pages)
        if not found and self.ledger is not None:
            found += ledger_violations(pages, self.ledger, in_group=self.group is not None)
        return found

    def _start(self, num_pages: int) -> None:
        """All pages free, no group open; where the device has no room all stays as it was."""
        with room_for(f"{num_pages} pages", self.device):
            ids = torch.arange(1, num_pages + 1, dtype=torch.int64, device=self.device)
            free_list = FreeList(ids)
            ledger = Ledger(num_pages, self.page_size, self.device) if self.checks else None
        self.num_pages, self.free_list, self.ledger = num_pages, free_list, ledger
        self.group = None

    def _release(self, pages: Tensor) -> None:
        if self.need_sort:
            self.free_list.stage(pages)
        else:
            self.put_back(pages)
        self._mark(pages, FREE)

    def _mark(self, pages: Tensor, state: int) -> None:
        if self.ledger is not None:
            self.ledger.mark(pages, state)


def refuse_scattered(index: Tensor, pages: Tensor, page_size: int) -> None:
    """Refuse a segment whose slots do not fill page after page."""
    if not index.numel():
        return
    wrong = index != slots_of(pages, page_size).reshape(-1)[: index.numel()]
    if bool(wrong.any()):
        at = int(wrong.nonzero()[0])
        raise PoolError(
            f"slot {int(index[at])} is not the slot of a segment's token {at}",
            hint="a segment holds consecutive tokens of one row from the start of a page",
        )


def list_violations(pages: Tensor, first_page: int, num_pages: int) -> list[str]:
    """Pages of a free list that stand twice or do not exist."""
    ordered = pages.sort().values
    twice = ordered[1:][ordered[1:] == ordered[:-1]].tolist()
    outside = pages[(pages < first_page) | (pages >= first_page + num_pages)].tolist()
    return [f"page {page} stands twice in the free list" for page in twice] + [
        f"page {page} of the free list does not exist" for page in outside
    ]


def ledger_violations(pages: Tensor, ledger: Ledger, *, in_group: bool = False) -> list[str]:
    """Where a free list and its ledger tell different stories; pages leave in an open group alone."""
    held = pages[ledger.state_of(pages) != FREE].tolist()
    found = [f"page {page} is free and handed out at once" for page in held]
    lost = ledger.count(FREE) - (pages.numel() - len(held))
    if lost:
        found.append(f"{lost} pages are neither free nor handed out")
    leaving = ledger.count(SLOTS_LEAVING) + ledger.count(PAGES_LEAVING)
    if leaving and not in_group:
        found.append(f"{leaving} pages left with a free group and never came back")
    return found
