"""Who holds which page, kept beside the free list so that misuse is refused by name."""

from __future__ import annotations

import torch
from torch import Tensor

from kvplan.errors import PoolError

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
        self.states = torch.zeros(self.end_page, dtype=torch.int8, device=device)

    def clear(self) -> None:
        """Everything is free again."""
        self.states.zero_()

    def mark(self, pages: Tensor, state: int) -> None:
        """Set the state of `pages` (num_pages,)."""
        self.states[pages] = state

    def count(self, state: int) -> int:
        """Pages in one state, padding left out."""
        return int((self.states[self.first_page :] == state).count_nonzero())

    def refuse_slots(self, slots: Tensor, *, leaving: bool = False) -> None:
        """Refuse slots whose page isn't owned; `leaving` lets pages pass that leave slot by slot."""
        pages = slots // self.page_size
        self._refuse_range(slots, pages)
        states = self.states[pages]
        good = states == OWNED
        if leaving:
            good |= states == SLOTS_LEAVING
        if not bool(good.all()):
            slot = int(slots[~good][0])
            raise PoolError(
                f"slot {slot} is freed twice: page {slot // self.page_size} is not handed out",
                hint="free each slot once, by the request that holds it",
            )

    def refuse_pages(self, pages: Tensor) -> None:
        """Refuse page ids that aren't owned or stand twice in `pages`."""
        self.refuse_slots(pages * self.page_size)
        ordered = pages.sort().values
        twice = ordered[1:] == ordered[:-1]
        if bool(twice.any()):
            page = int(ordered[1:][twice][0])
            raise PoolError(
                f"page {page} (slot {page * self.page_size}) is freed twice by one call",
                hint="a page goes back once",
            )

    def refuse_open_pages(self, last_loc: Tensor, prefix_lens: Tensor) -> None:
        """Refuse a last_loc that is not where a prefix of that length ends, or not owned."""
        page_size = self.page_size
        wrong = (last_loc + 1 - prefix_lens) % page_size != 0
        if bool(wrong.any()):
            request = int(wrong.nonzero()[0])
            raise PoolError(
                f"request {request} of the batch has last_loc {int(last_loc[request])}, "
                f"but a prefix of {int(prefix_lens[request])} tokens ends at offset "
                f"{(int(prefix_lens[request]) - 1) % page_size} of its page",
                hint="pass the slot of the request's last token, -1 without a prefix",
            )
        is_open = prefix_lens % page_size != 0
        if bool(is_open.any()):
            self._refuse_foreign(last_loc[is_open], is_open)

    def _refuse_foreign(self, last_loc: Tensor, is_open: Tensor) -> None:
        pages = last_loc // self.page_size
        inside = (pages >= self.first_page) & (pages < self.end_page)
        owned = inside & (self.states[pages.clamp(0, self.end_page - 1)] == OWNED)
        if not bool(owned.all()):
            at = int((~owned).nonzero()[0])
            request = int(is_open.nonzero()[at])
            raise PoolError(
                f"request {request} of the batch has last_loc {int(last_loc[at])}, "
                "a slot of a page that is not handed out",
                hint="its pages were freed, or the slot is another pool's",
            )

    def _refuse_range(self, slots: Tensor, pages: Tensor) -> None:
        low, high = (int(bound) for bound in torch.aminmax(pages))
        if low < self.first_page:
            slot = int(slots[pages < self.first_page][0])
            raise PoolError(
                f"slot {slot} is a padding slot" if slot >= 0 else f"slot {slot} is no slot",
                hint=f"slots start at {self.first_page * self.page_size}",
            )
        if high >= self.end_page:
            slot = int(slots[pages >= self.end_page][0])
            raise PoolError(
                f"slot {slot} is foreign: the pool ends at slot {self.end_page * self.page_size - 1}",
                hint="it belongs to another pool",
            )
