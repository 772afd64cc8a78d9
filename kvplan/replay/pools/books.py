"""Who owns each page, kept apart from the allocator: it answers for what was handed out."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kvplan.allocators.paged import PagedAllocator
from kvplan.allocators.sliding import SlidingAllocator
from kvplan.replay import checks
from kvplan.replay.checks import Broken
from kvplan.replay.pools.watched import Growth, Ints, Tenancy, Watcher, first_repeated, on_host
from kvplan.replay.workloads.operations import Side, Span

NOBODY = 0
MAX_NAMED = 3  # pages that a finding names


class Books(Watcher):
    """Owners of the full pages and, where there are two pools, of the sliding ones.

    Every growth must take pages that are nobody's and continue the pages that the request owns;
    every free must give back pages that somebody owns. Broken says who stands in the way.
    """

    def __init__(self, allocator: PagedAllocator | SlidingAllocator) -> None:
        self.page_size = allocator.page_size
        if isinstance(allocator, SlidingAllocator):
            sliding, num_pages = allocator, allocator.full.num_pages
        else:
            sliding, num_pages = None, allocator.num_pages
        self.owner = np.zeros(num_pages + 1, dtype=np.int64)  # tenancy; of page 0 nobody
        self.start = np.zeros(num_pages + 1, dtype=np.int64)  # position of the page's first slot
        self.last_owner = np.zeros(num_pages + 1, dtype=np.int64)
        self.names: dict[int, str] = {}
        self._sliding = sliding
        num_sliding = sliding.swa.num_pages if sliding is not None else 0
        self.peer = np.zeros(num_pages + 1 if sliding is not None else 0, dtype=np.int64)
        self.peer_taken = np.zeros(num_sliding + 1, dtype=bool)

    def opened(self, tenancy: Tenancy, prefix: list[Tensor]) -> None:
        self.names[tenancy.number] = tenancy.name
        for slots in prefix:
            self._refuse_unowned(tenancy.name, on_host(slots))

    def grown(self, growth: Growth) -> None:
        page_size = self.page_size
        slots, owners, positions = growth.slots, growth.owners(), growth.positions()
        pages = slots // page_size
        self._refuse_foreign(growth, pages)
        first = positions % page_size == 0
        new = pages[first] if page_size > 1 else pages
        taken = self.owner[new] != NOBODY
        if taken.any():
            at = int(np.flatnonzero(taken)[0])
            self._refuse_taken(int(owners[first][at]), int(new[at]))
        self.owner[new], self.start[new] = owners[first], positions[first]
        offset = positions % page_size
        wrong = self.owner[pages] != owners
        wrong |= (self.start[pages] != positions - offset) | (slots % page_size != offset)
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            self._refuse_displaced(int(owners[at]), int(positions[at]), int(slots[at]))
        if self._sliding is not None:
            self._map(self._sliding, new)

    def freed(self, slots: Tensor, side: Side) -> None:
        pages = on_host(slots[:: self.page_size]) // self.page_size
        inside = (pages > 0) & (pages < len(self.owner))
        held = inside & (self.owner[np.where(inside, pages, 0)] != NOBODY)
        if not held.all():
            page = int(pages[~held][0])
            raise Broken(
                checks.OWNERS,
                f"page {page} is given back and nobody owns it",
                slot=page * self.page_size,
                request=self.last_holder(page),
            )
        if self._sliding is not None:
            self._unmap(pages, side)
        if side != "sliding":
            self.last_owner[pages] = self.owner[pages]
            self.owner[pages] = NOBODY

    def moved(self, kept: Tensor, incoming: Tensor) -> None:
        target = on_host(kept[:: self.page_size]) // self.page_size
        source = on_host(incoming[:: self.page_size]) // self.page_size
        self.peer[target] = self.peer[source]
        self.peer[source] = 0

    def spans(self, slots: Tensor) -> tuple[Span, ...]:
        """Slots that start on a page, as positions of the requests that they were given to."""
        if not len(slots):
            return ()
        page_size = self.page_size
        pages = on_host(slots[::page_size]) // page_size
        owners, starts = self.owner[pages], self.start[pages]
        owners = np.where(owners == NOBODY, self.last_owner[pages], owners)
        breaks = np.flatnonzero((np.diff(owners) != 0) | (np.diff(starts) != page_size)) + 1
        firsts = np.concatenate(([0], breaks))
        counts = np.diff(np.concatenate((firsts, [len(pages)]))) * page_size
        counts[-1] -= len(pages) * page_size - len(slots)
        return tuple(
            (self.names.get(int(owners[at]), "?"), int(starts[at]), int(starts[at] + count))
            for at, count in zip(firsts, counts, strict=True)
        )

    def holder(self, page: int) -> str | None:
        """The request whose page it is."""
        return self.names.get(int(self.owner[page]))

    def last_holder(self, page: int) -> str | None:
        """The request whose page it was."""
        if not 0 <= page < len(self.owner):
            return None
        return self.holder(page) or self.names.get(int(self.last_owner[page]))

    def findings(self, free_pages: Tensor, free_sliding: Tensor | None = None) -> list[Broken]:
        """Pages that are free and owned at once, or neither, on both sides."""
        found = self._disagreements(free_pages, self.owner != NOBODY, "")
        if free_sliding is not None:
            found += self._disagreements(free_sliding, self.peer_taken, "sliding ")
        return found

    def _disagreements(self, free: Tensor, owned: NDArray[np.bool_], side: str) -> list[Broken]:
        is_free = np.zeros(len(owned), dtype=bool)
        is_free[on_host(free)] = True
        twice, lost = is_free & owned, ~is_free & ~owned
        lost[0] = False
        return [
            self._finding(int(page), side, words)
            for pages, words in ((twice, "is free and owned at once"), (lost, "is lost: neither free nor owned"))
            for page in np.flatnonzero(pages)[:MAX_NAMED]
        ]  # fmt: skip

    def _finding(self, page: int, side: str, words: str) -> Broken:
        whose = None if side else self.last_holder(page)
        return Broken(
            checks.OWNERS, f"{side}page {page} {words}", slot=page * self.page_size, request=whose
        )

    def _map(self, allocator: SlidingAllocator, pages: Ints) -> None:
        """Note the sliding page of each new full page."""
        first_slots = torch.from_numpy(pages * self.page_size).to(allocator.device)
        peers = on_host(allocator.full_to_swa[first_slots]) // self.page_size
        wrong = np.flatnonzero((peers <= 0) | self.peer_taken[np.clip(peers, 0, None)])
        at = int(wrong[0]) if len(wrong) else first_repeated(peers)
        if at is not None:
            page = int(pages[at])
            raise Broken(
                checks.OWNERS,
                f"sliding page {int(peers[at])} is mapped to page {page} and taken already",
                slot=page * self.page_size,
                request=self.holder(page),
            )
        self.peer[pages] = peers
        self.peer_taken[peers] = True

    def _unmap(self, pages: Ints, side: Side) -> None:
        """The sliding parts go; a full part goes alone where its sliding part went before."""
        peers = self.peer[pages]
        wrong = peers != 0 if side == "full" else peers == 0
        if wrong.any():
            page = int(pages[wrong][0])
            state = "still has a sliding page" if side == "full" else "has no sliding page any more"
            raise Broken(
                checks.OWNERS,
                f"page {page} is given back ({side}) and {state}",
                slot=page * self.page_size,
                request=self.holder(page),
            )
        if side != "full":
            self.peer_taken[peers] = False
            self.peer[pages] = 0

    def _refuse_foreign(self, growth: Growth, pages: Ints) -> None:
        outside = (pages < 1) | (pages >= len(self.owner))
        if outside.any():
            at = int(np.flatnonzero(outside)[0])
            raise Broken(
                checks.OWNERS,
                "a slot that is padding or does not exist was handed out",
                slot=int(growth.slots[at]),
                request=self.names.get(int(growth.owners()[at])),
            )

    def _refuse_unowned(self, name: str, slots: Ints) -> None:
        pages = slots // self.page_size
        free = self.owner[pages] == NOBODY
        if free.any():
            page = int(pages[free][0])
            raise Broken(
                checks.OWNERS,
                f"the cached prefix has page {page}, which nobody owns",
                slot=page * self.page_size,
                request=name,
            )

    def _refuse_taken(self, owner: int, page: int) -> None:
        raise Broken(
            checks.OWNERS,
            f"page {page} was handed out and is owned by request '{self.holder(page)}'",
            slot=page * self.page_size,
            request=self.names.get(owner),
        )

    def _refuse_displaced(self, owner: int, position: int, slot: int) -> None:
        page = slot // self.page_size
        raise Broken(
            checks.OWNERS,
            f"position {position} got a slot of page {page}, which is owned by request"
            f" '{self.holder(page)}' from position {int(self.start[page])} on",
            slot=slot,
            request=self.names.get(owner),
        )
