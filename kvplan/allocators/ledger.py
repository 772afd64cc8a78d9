"""Who holds which page, kept beside the free list so that misuse is refused by name."""

from __future__ import annotations

import torch
from torch import Tensor

from kvplan.errors import PoolError
from kvplan.kernels.paging import offset_of, page_of

FREE, OWNED, SLOTS_LEAVING, PAGES_LEAVING = range(4)


class Ledger:
    """One state a page: free, owned, or on its way back in an open free group.

    Every check reads the states back, so an allocator on a GPU runs without a ledger unless it
    is asked for one.
    """

    def __init__(
        self, num_pages: int, page_size: int, device: torch.device, *, first_page: int = 1
    ) -> None:
        """Pages `first_page .. first_page + num_pages - 1` can be owned; those before are padding."""
        self.page_size = page_size
        self.first_page = first_page
        self.end_page = first_page + num_pages
        # one entry more, never owned, answers for pages that do not exist
        self._table = torch.zeros(self.end_page + 1, dtype=torch.int8, device=device)

    def mark(self, pages: Tensor, state: int) -> None:
        """Set the state of `pages` (num_pages,)."""
        self._table.index_fill_(0, pages, state)

    def count(self, state: int) -> int:
        """Pages in one state, padding left out."""
        states = self._table[self.first_page : self.end_page]
        return int((states == state).count_nonzero())

    def state_of(self, pages: Tensor) -> Tensor:
        """States (num_pages,) int8 of pages that exist."""
        return self._table[pages]

    def refuse_slots(self, slots: Tensor, *, leaving: bool = False) -> None:
        """Refuse slots whose page isn't owned; `leaving` lets pages pass that leave slot by slot."""
        states = self._states_of(page_of(slots, self.page_size))
        good = states == OWNED
        if leaving:
            good |= states == SLOTS_LEAVING
        if not bool(good.all()):
            self._refuse_slot(int(slots[~good][0]))

    def refuse_pages(self, pages: Tensor) -> None:
        """Refuse page ids that aren't owned or stand twice in `pages`."""
        stray = pages[self._states_of(pages) != OWNED]
        if stray.numel():
            self._refuse_slot(int(stray[0]) * self.page_size)
        ordered = pages.sort().values
        twice = ordered[1:] == ordered[:-1]
        if bool(twice.any()):
            page = int(ordered[1:][twice][0])
            raise PoolError(
                f"page {page} (slot {page * self.page_size}) is freed twice by one call",
                hint="a page goes back once",
            )

    def refuse_open_pages(self, last_loc: Tensor, prefix_lens: Tensor) -> None:
        """Refuse a last_loc that is not where a prefix of that length ends, not owned, or shared."""
        pages = page_of(last_loc, self.page_size)
        if self._all_go_on(pages, last_loc, prefix_lens):
            return
        aligned = offset_of(last_loc + 1 - prefix_lens, self.page_size) == 0
        owned = self._states_of(pages) == OWNED
        good = torch.where(prefix_lens > 0, aligned & owned, last_loc == -1)
        if bool(good.all()):
            self._refuse_shared(pages, offset_of(prefix_lens, self.page_size) > 0)
            return
        request = int((~good).nonzero()[0])
        last, prefix_len = int(last_loc[request]), int(prefix_lens[request])
        if prefix_len == 0:
            raise PoolError(
                f"request {request} of the batch has last_loc {last} and no prefix",
                hint="pass -1 without a prefix",
            )
        if bool(aligned[request]):
            raise PoolError(
                f"request {request} of the batch has last_loc {last}, "
                "a slot of a page that is not handed out",
                hint="its pages were freed, or the slot is another pool's",
            )
        raise PoolError(
            f"request {request} of the batch has last_loc {last}, but a prefix of {prefix_len} "
            f"tokens ends at offset {(prefix_len - 1) % self.page_size} of its page",
            hint="pass the slot of the request's last token, -1 without a prefix",
        )

    def _all_go_on(self, pages: Tensor, last_loc: Tensor, prefix_lens: Tensor) -> bool:
        """Whether every request has a prefix that ends at its last_loc, in an owned page of its own.

        The usual batch, decided in few operations; what is refused of others takes a closer look.
        """
        if not last_loc.numel() or int(prefix_lens.min()) <= 0:
            return False
        if int((self._states_of(pages) != OWNED).count_nonzero()):
            return False
        if self.page_size == 1:
            return True
        if int(offset_of(last_loc + 1 - prefix_lens, self.page_size).count_nonzero()):
            return False
        # where two requests claim one page, one of them does not find itself there again
        requests = torch.arange(pages.numel(), device=pages.device)
        claims = pages.new_empty(self.end_page).scatter_(0, pages, requests)
        return torch.equal(claims.gather(0, pages), requests)

    def _refuse_shared(self, pages: Tensor, is_open: Tensor) -> None:
        """Refuse two requests that would both go on within one page."""
        open_pages = pages[is_open]
        ordered = open_pages.sort().values
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        if twice.numel():
            page = int(twice[0])
            first, second = (is_open & (pages == page)).nonzero().flatten()[:2].tolist()
            raise PoolError(
                f"requests {first} and {second} of the batch both go on within page {page}",
                hint="a page that is not full belongs to one request",
            )

    def _states_of(self, pages: Tensor) -> Tensor:
        """States of pages that need not exist: padding and foreign ones read as free."""
        return self._table.index_select(0, pages.clamp(0, self.end_page))

    def _refuse_slot(self, slot: int) -> None:
        page = slot // self.page_size
        if page < self.first_page:
            raise PoolError(
                f"slot {slot} is a padding slot" if slot >= 0 else f"slot {slot} is no slot",
                hint=f"slots start at {self.first_page * self.page_size}",
            )
        if page >= self.end_page:
            raise PoolError(
                f"slot {slot} is foreign: the pool ends at slot {self.end_page * self.page_size - 1}",
                hint="it belongs to another pool",
            )
        raise PoolError(
            f"slot {slot} is freed twice: page {page} is not handed out",
            hint="free each slot once, by the request that holds it",
        )
