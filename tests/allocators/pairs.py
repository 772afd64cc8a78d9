"""A random workload for an allocator and its oracle: both answer alike, slot for slot."""

from __future__ import annotations

import random
from typing import Any

from kvplan.allocators.paged import PagedAllocator
from kvplan.allocators.ring import RingAllocator
from kvplan.allocators.token import TokenAllocator
from kvplan.pools.rows import RequestRows
from kvplan.pools.storage import open_storage
from tests.allocators import oracle
from tests.allocators.machine import ids


def listed(slots):
    return None if slots is None else slots.tolist()


class Pair:
    """An allocator and its oracle under the same workload."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"{type(self).__name__} {seed}")
        self.page_size = self.rng.choice(self.page_sizes())
        self.num_pages = self.rng.randrange(1, 40)
        self.need_sort = self.rng.random() < 0.5
        self.requests: list[list[int]] = []
        self.in_group = False
        self.pool, self.oracle = self.build()

    def page_sizes(self) -> list[int]:
        return [1, 2, 3, 4, 16, 30]

    def build(self) -> tuple[Any, Any]:
        raise NotImplementedError

    def state(self):
        return self.pool.free_pages().tolist(), len(self.pool.free_list)

    def operations(self):
        names = ["extend"] * 4 + ["decode"] * 5 + ["alloc"]
        if self.requests:
            names += ["free", "free_segment", "free_pages", "free_tail"]
        return [*names, "merge", "group"]

    def run(self, num_steps: int) -> None:
        for step in range(num_steps):
            operation = self.rng.choice(self.operations())
            getattr(self, operation)()
            assert self.state() == self.oracle.state(), f"step {step}: {operation}"
            assert self.pool.available_size() == self.oracle.available() * self.page_size
            assert self.pool.verify_accounting() == []

    # what a scheduler does

    def batch(self) -> list[list[int]]:
        return self.rng.sample(self.requests, self.rng.randrange(len(self.requests) + 1))

    def new_len(self) -> int:
        longest = self.rng.choice([1, 2, self.page_size, 3 * self.page_size + 1])
        return self.rng.randrange(longest + 1)

    def growing(self) -> tuple[list[list[int]], list[int], list[int], list[int]]:
        batch = [*self.batch(), *([] for _ in range(self.rng.randrange(3)))]
        self.rng.shuffle(batch)
        prefix_lens = [len(slots) for slots in batch]
        seq_lens = [length + self.new_len() for length in prefix_lens]
        return batch, prefix_lens, seq_lens, [slots[-1] if slots else -1 for slots in batch]

    def agree(self, batch, new_lens, mine, meant) -> None:
        assert mine == meant
        if mine is None:
            return
        at = 0
        for slots, new_len in zip(batch, new_lens, strict=True):
            held = any(slots is each for each in self.requests)
            slots += mine[at : at + new_len]
            at += new_len
            if slots and not held:
                self.requests.append(slots)
        assert at == len(mine)

    def extend(self) -> None:
        batch, prefix_lens, seq_lens, last = self.growing()
        mine = self.pool.alloc_extend(ids(prefix_lens), ids(seq_lens), ids(last))
        new_lens = [after - before for before, after in zip(prefix_lens, seq_lens, strict=True)]
        self.agree(batch, new_lens, listed(mine), self.oracle.extend(prefix_lens, seq_lens, last))

    def decode(self) -> None:
        batch = self.batch()
        seq_lens = [len(slots) + 1 for slots in batch]
        last = [slots[-1] for slots in batch]
        mine = self.pool.alloc_decode(ids(seq_lens), ids(last))
        self.agree(batch, [1] * len(batch), listed(mine), self.oracle.decode(seq_lens, last))

    def alloc(self) -> None:
        need = self.rng.randrange(4) * self.page_size
        self.agree([[]], [need], listed(self.pool.alloc(need)), self.oracle.alloc(need))

    def leaving(self) -> list[int]:
        return self.requests.pop(self.rng.randrange(len(self.requests)))

    def free(self) -> None:
        slots = self.leaving()
        self.rng.shuffle(slots)
        self.pool.free(ids(slots))
        self.oracle.give(slots)

    def free_segment(self) -> None:
        slots = self.leaving()
        self.pool.free_segment(ids(slots), start_pos=0)
        self.oracle.give_segment(slots)

    def free_tail(self) -> None:
        """What a speculative step gives back: whole pages from the end of a row."""
        slots = self.leaving()
        cut = self.rng.randrange(len(slots) // self.page_size + 1) * self.page_size
        self.pool.free_segments([(ids(slots[cut:]), cut)])
        if slots[cut:]:
            self.oracle.give_segment(slots[cut:])
        if cut:
            self.requests.append(slots[:cut])

    def free_pages(self) -> None:
        pages = oracle.pages_of(self.leaving()[:: self.page_size], self.page_size)
        self.rng.shuffle(pages)
        self.pool.free_page_ids(ids(pages))
        self.oracle.give_pages(pages)

    def merge(self) -> None:
        self.pool.merge_and_sort_free()
        self.oracle.merge()

    def group(self) -> None:
        if self.in_group:
            self.pool.free_group_end()
            self.oracle.group_end()
        else:
            self.pool.free_group_begin()
            self.oracle.group_begin()
        self.in_group = not self.in_group


class PagedPair(Pair):
    def build(self):
        size = self.num_pages * self.page_size
        return (
            PagedAllocator(size, self.page_size, need_sort=self.need_sort),
            oracle.Pages(self.num_pages, self.page_size, need_sort=self.need_sort),
        )


class TokenPair(Pair):
    def page_sizes(self):
        return [1]

    def build(self):
        return (
            TokenAllocator(self.num_pages, need_sort=self.need_sort),
            oracle.Tokens(self.num_pages, 1, need_sort=self.need_sort),
        )


class RingPair(PagedPair):
    def build(self):
        rows = RequestRows(3, 1, storage=open_storage("cpu"))
        size = self.num_pages * self.page_size
        return (
            RingAllocator(size, self.page_size, ring_size=5, rows=rows, need_sort=self.need_sort),
            super().build()[1],
        )
