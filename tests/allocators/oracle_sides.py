"""What the allocators of several free lists mean: two sides in step, or one list a rank."""

from __future__ import annotations

from tests.allocators.oracle import Pages, Tokens, grown, num_opened, pages_of


class Paired:
    """Two sides in step, and which slot of the second each slot of the first has."""

    def __init__(self, first: Pages, second: Pages) -> None:
        self.first, self.second = first, second
        self.page_size = first.page_size
        self.peer: dict[int, int] = {}

    def available(self) -> int:
        return min(self.first.available(), self.second.available())

    def state(self):
        return *self.first.state(), *self.second.state(), dict(sorted(self.peer.items()))

    def join(self, slots, peers):
        assert (slots is None) == (peers is None)
        if slots is not None:
            self.peer |= dict(zip(slots, peers, strict=True))
        return slots

    def alloc(self, num_tokens: int):
        if num_tokens // self.page_size > self.available():
            return None
        return self.join(self.first.alloc(num_tokens), self.second.alloc(num_tokens))

    def extend(self, prefix_lens, seq_lens, last_loc):
        if num_opened(prefix_lens, seq_lens, self.page_size) > self.available():
            return None
        last_peer = [self.peer.get(slot, -1) for slot in last_loc]
        return self.join(
            self.first.extend(prefix_lens, seq_lens, last_loc),
            self.second.extend(prefix_lens, seq_lens, last_peer),
        )

    def merge(self) -> None:
        self.first.merge()
        self.second.merge()

    def part(self, slots) -> list[int]:
        """Peers of all slots of the pages of `slots`, unmapped, in order of the pages."""
        pages = list(dict.fromkeys(pages_of(slots, self.page_size)))
        every = [page * self.page_size + lane for page in pages for lane in range(self.page_size)]
        return [self.peer.pop(slot) for slot in every if slot in self.peer]


class Sliding(Paired):
    """Full and sliding slots; the sliding part may go first."""

    def __init__(self, num_full: int, num_swa: int, page_size: int, *, need_sort: bool) -> None:
        side = Tokens if page_size == 1 else Pages
        super().__init__(
            side(num_full, page_size, need_sort=need_sort),
            side(num_swa, page_size, need_sort=need_sort),
        )
        # slots and pages of the sliding side that leave with the group, unmapped at once
        self.leaving_slots: list[int] = []
        self.leaving_pages: list[int] = []

    def decode(self, seq_lens, last_loc):
        before = [seq_len - 1 for seq_len in seq_lens]
        need = num_opened(before, seq_lens, self.page_size)
        for side in (self.first, self.second):
            if len(seq_lens) > len(side.free):
                side.merge()
        if need > min(len(self.first.free), len(self.second.free)):
            return None
        last_peer = [self.peer.get(slot, -1) for slot in last_loc]
        return self.join(
            self.first.decode(seq_lens, last_loc), self.second.decode(seq_lens, last_peer)
        )

    def tail(self, seq_len: int, tail: int):
        swa_need = num_opened([0], [tail], self.page_size)
        full_need = num_opened([0], [seq_len], self.page_size)
        if full_need > self.first.available() or swa_need > self.second.available():
            return None
        slots = self.first.extend([0], [seq_len], [-1])
        assert slots is not None
        if tail:
            self.join(slots[-tail:], self.second.extend([0], [tail], [-1]))
        return slots

    def give(self, slots) -> None:
        self.give_swa(slots)
        self.first.give(slots)

    def give_segment(self, slots) -> None:
        self.give_swa_segment(slots)
        self.first.give_segment(slots)

    def give_pages(self, pages) -> None:
        self.give_swa_segment([page * self.page_size for page in pages], stride=1)
        self.first.give_pages(pages)

    def give_swa(self, slots) -> None:
        if self.page_size == 1:
            self.give_swa_segment(slots)
            return
        peers = self.part(slots)
        if self.first.in_group:
            self.leaving_slots += peers
        else:
            self.second.give(peers)

    def give_swa_segment(self, slots, stride: int | None = None) -> None:
        firsts = slots[:: stride or self.page_size]
        pages = [self.part([slot])[0] // self.page_size for slot in firsts]
        if self.first.in_group:
            self.leaving_pages += pages
        else:
            self.second.give_pages(pages)

    def group_begin(self) -> None:
        self.first.group_begin()

    def group_end(self) -> None:
        pages, slots = self.leaving_pages, self.leaving_slots
        self.leaving_pages, self.leaving_slots = [], []
        self.second.give_pages(pages)
        self.second.give(slots)
        self.first.group_end()


class Sparse(Paired):
    """Logical slots, some of them with device slots; frees never wait."""

    def __init__(self, num_device: int, page_size: int, ratio: int, *, need_sort: bool) -> None:
        super().__init__(
            Pages(num_device * ratio, page_size, need_sort=need_sort),
            Pages(num_device, page_size, need_sort=need_sort),
        )

    def extend_logical(self, prefix_lens, seq_lens, last_loc):
        return self.first.extend(prefix_lens, seq_lens, last_loc)

    def decode(self, seq_lens, last_loc):
        return self.first.decode(seq_lens, last_loc)

    def give(self, slots) -> None:
        self.second.give(self.part(slots))
        self.first.give(slots)

    def give_segment(self, slots) -> None:
        self.give(slots)

    def give_pages(self, pages) -> None:
        self.second.give(self.part([page * self.page_size for page in pages]))
        self.first.give_pages(pages)

    def group_begin(self) -> None:
        """Nothing waits."""

    def group_end(self) -> None:
        """Nothing waited."""


class Interleaved:
    """Page l is rank l % N's: one list a rank, chains go round the ranks."""

    def __init__(self, pages_a_rank: int, page_size: int, ranks: int, *, need_sort: bool) -> None:
        self.page_size, self.ranks = page_size, ranks
        self.sides = [Pages(0, page_size, need_sort=need_sort) for _ in range(ranks)]
        for rank, side in enumerate(self.sides):
            side.free = [local * ranks + rank for local in range(1, pages_a_rank + 1)]
        self.in_group = False
        self.leaving: list[int] = []

    def counts(self) -> list[int]:
        return [side.available() for side in self.sides]

    def available(self) -> int:
        return self.ranks * min(self.counts())

    def state(self):
        frees = [page for side in self.sides for page in side.free]
        return frees + [page for side in self.sides for page in side.staged], self.counts()

    def merge(self) -> None:
        for side in self.sides:
            side.merge()

    def extend(self, prefix_lens, seq_lens, bases: list[int | None]):
        """Slots and the bases that were used; None when a rank is short."""
        left, used, owners = self.counts(), [], []
        for prefix_len, seq_len, base in zip(prefix_lens, seq_lens, bases, strict=True):
            if base is None:
                base = left.index(max(left))
            used.append(base)
            for position in range(prefix_len, seq_len):
                if position % self.page_size == 0:
                    owners.append((base + position // self.page_size) % self.ranks)
                    left[owners[-1]] -= 1
        if min(left) < 0:
            return None, bases
        needs = [owners.count(rank) for rank in range(self.ranks)]
        if any(need > len(side.free) for need, side in zip(needs, self.sides, strict=True)):
            self.merge()
        pages = iter([self.sides[owner].free.pop(0) for owner in owners])
        slots = [
            slot
            for prefix_len, seq_len in zip(prefix_lens, seq_lens, strict=True)
            for slot in grown(prefix_len, seq_len, -1, pages, self.page_size)
        ]
        return slots, used

    def give(self, slots) -> None:
        pages = sorted(set(pages_of(slots, self.page_size)))
        if self.in_group:
            self.leaving += pages
        else:
            self.release(pages)

    def release(self, pages: list[int]) -> None:
        for rank, side in enumerate(self.sides):
            own = [page for page in pages if page % self.ranks == rank]
            if side.need_sort:
                side.staged = own + side.staged
            else:
                side.free = own + side.free

    def group_begin(self) -> None:
        self.in_group = True

    def group_end(self) -> None:
        self.in_group, leaving = False, self.leaving
        self.leaving = []
        self.release(sorted(set(leaving)))
