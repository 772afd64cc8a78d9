"""What the allocators mean, page by page on plain lists: slow, and written apart from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def pages_of(slots: Sequence[int], page_size: int) -> list[int]:
    """The page of each slot."""
    return [slot // page_size for slot in slots]


def grown(prefix_len: int, seq_len: int, last: int, pages: Iterator[int], page_size: int):
    """Slots of a request's new tokens."""
    slots = []
    for position in range(prefix_len, seq_len):
        last = next(pages) * page_size if position % page_size == 0 else last + 1
        slots.append(last)
    return slots


def num_opened(prefix_lens: Sequence[int], seq_lens: Sequence[int], page_size: int) -> int:
    """Positions that open a page."""
    return sum(
        position % page_size == 0
        for prefix_len, seq_len in zip(prefix_lens, seq_lens, strict=True)
        for position in range(prefix_len, seq_len)
    )


class Pages:
    """One list of free pages, taken from the head, and those that wait to be sorted in."""

    def __init__(self, num_pages: int, page_size: int, *, need_sort: bool) -> None:
        self.page_size, self.need_sort = page_size, need_sort
        self.free = list(range(1, num_pages + 1))
        self.staged: list[int] = []
        self.in_group = False
        self.group_slots: list[int] = []
        self.group_pages: list[int] = []

    def state(self):
        return self.free + self.staged, len(self.free)

    def available(self) -> int:
        return len(self.free) + len(self.staged)

    def merge(self) -> None:
        if self.staged:
            self.free, self.staged = sorted(self.free + self.staged), []

    def take(self, num_pages: int, *, at_most: int) -> list[int] | None:
        if at_most > len(self.free):
            self.merge()
        if num_pages > len(self.free):
            return None
        taken, self.free = self.free[:num_pages], self.free[num_pages:]
        return taken

    def alloc(self, num_tokens: int):
        num_pages = num_tokens // self.page_size
        pages = self.take(num_pages, at_most=num_pages)
        if pages is None:
            return None
        return [page * self.page_size + lane for page in pages for lane in range(self.page_size)]

    def extend(self, prefix_lens, seq_lens, last_loc):
        num_tokens = sum(seq_lens) - sum(prefix_lens)
        need = num_opened(prefix_lens, seq_lens, self.page_size)
        bound = num_tokens // self.page_size + len(seq_lens) + 1
        pages = self.take(need, at_most=bound)
        return None if pages is None else self.fill(prefix_lens, seq_lens, last_loc, pages)

    def decode(self, seq_lens, last_loc):
        before = [seq_len - 1 for seq_len in seq_lens]
        pages = self.take(num_opened(before, seq_lens, self.page_size), at_most=len(seq_lens))
        return None if pages is None else self.fill(before, seq_lens, last_loc, pages)

    def fill(self, prefix_lens, seq_lens, last_loc, pages):
        new_pages = iter(pages)
        return [
            slot
            for prefix_len, seq_len, last in zip(prefix_lens, seq_lens, last_loc, strict=True)
            for slot in grown(prefix_len, seq_len, last, new_pages, self.page_size)
        ]

    def give(self, slots) -> None:
        """A plain free: pages unique and ascending."""
        if self.in_group:
            self.group_slots += slots
        else:
            self.release(sorted(set(pages_of(slots, self.page_size))))

    def give_segment(self, slots) -> None:
        self.give_pages(pages_of(slots[:: self.page_size], self.page_size))

    def give_pages(self, pages) -> None:
        if self.in_group:
            self.group_pages += pages
        else:
            self.release(pages)

    def release(self, pages: list[int]) -> None:
        if self.need_sort:
            self.staged += pages
        else:
            self.free = pages + self.free

    def group_begin(self) -> None:
        self.in_group = True

    def group_end(self) -> None:
        slots, pages = self.group_slots, self.group_pages
        self.in_group, self.group_slots, self.group_pages = False, [], []
        self.release(sorted(set(pages_of(slots, self.page_size))))
        self.release(pages)


class Tokens(Pages):
    """Pages of one token: no upper bound, order as given, behind the list."""

    def __init__(self, num_tokens: int, page_size: int, *, need_sort: bool) -> None:
        assert page_size == 1
        super().__init__(num_tokens, 1, need_sort=need_sort)

    def extend(self, prefix_lens, seq_lens, last_loc):  # noqa: ARG002
        return self.alloc(sum(seq_lens) - sum(prefix_lens))

    def decode(self, seq_lens, last_loc):  # noqa: ARG002
        return self.alloc(len(seq_lens))

    def give(self, slots) -> None:
        self.give_pages(slots)

    def release(self, pages: list[int]) -> None:
        if self.need_sort:
            self.staged += pages
        else:
            self.free = self.free + pages
