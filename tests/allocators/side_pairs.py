"""The workload over two sides in step, and over one free list a rank."""

from __future__ import annotations

from kvplan.allocators.interleaved import InterleavedAllocator
from kvplan.allocators.sliding import SlidingAllocator
from kvplan.allocators.sparse import SparseAllocator
from tests.allocators import oracle_sides
from tests.allocators.machine import ids
from tests.allocators.pairs import Pair, listed


class MappedPair(Pair):
    """Both sides' lists, and the table with its padding and sentinel."""

    def state(self):
        table = self.pool.table.tolist()
        assert table[: self.page_size] == [0] * self.page_size
        assert table[-1] == -1
        peers = {slot: peer for slot, peer in enumerate(table[:-1]) if peer}
        first, second = self.pool.first, self.pool.second
        return (
            first.free_pages().tolist(),
            len(first.free_list),
            second.free_pages().tolist(),
            len(second.free_list),
            peers,
        )


class SlidingPair(MappedPair):
    def build(self):
        num_swa = self.rng.randrange(1, self.num_pages + 6)
        return (
            SlidingAllocator(
                self.num_pages * self.page_size,
                num_swa * self.page_size,
                self.page_size,
                need_sort=self.need_sort,
            ),
            oracle_sides.Sliding(self.num_pages, num_swa, self.page_size, need_sort=self.need_sort),
        )

    def operations(self):
        tail = ["tail"] if self.page_size > 1 else []
        return super().operations() + tail + ["leave_window"] * (2 * bool(self.requests))

    def kept_from(self, slots) -> int:
        """The first position with a sliding part; none has lost it behind one that has it."""
        return next((at for at, slot in enumerate(slots) if slot in self.oracle.peer), len(slots))

    def batch(self):
        return [
            slots
            for slots in super().batch()
            if len(slots) % self.page_size == 0 or slots[-1] in self.oracle.peer
        ]

    def tail(self) -> None:
        seq_len = self.rng.randrange(1, 5 * self.page_size)
        start = self.rng.randrange(seq_len // self.page_size + 1) * self.page_size
        mine = self.pool.alloc_extend_swa_tail(
            ids([0]), ids([seq_len]), ids([-1]), swa_tail_len=seq_len - start
        )
        self.agree([[]], [seq_len], listed(mine), self.oracle.tail(seq_len, seq_len - start))

    def leave_window(self) -> None:
        slots = self.rng.choice(self.requests)
        start = self.kept_from(slots)
        whole = (len(slots) - start) // self.page_size
        stop = start + self.rng.randrange(whole + 1) * self.page_size
        if self.rng.random() < 0.5:
            self.pool.free_swa(ids(slots[start:stop]))
            self.oracle.give_swa(slots[start:stop])
        else:
            self.pool.free_swa_segment(ids(slots[start:stop]), start_pos=start)
            self.oracle.give_swa_segment(slots[start:stop])

    def leaving(self):
        """A request that lost the start of its window gives that part back first."""
        slots = super().leaving()
        gone = self.kept_from(slots)
        if gone:
            if self.rng.random() < 0.5:
                self.pool.free_full(ids(slots[:gone]))
                self.oracle.first.give(slots[:gone])
            else:
                self.pool.free_full_segment(ids(slots[:gone]), start_pos=0)
                self.oracle.first.give_segment(slots[:gone])
        return slots[gone:]

    def free_tail(self) -> None:
        """Freed as a whole, window or not: the pages that still slide go on both sides."""
        slots = Pair.leaving(self)
        if self.page_size == 1:
            slots = slots[self.kept_from(slots) :]
        self.pool.free(ids(slots))
        self.oracle.give(slots)


class SparsePair(MappedPair):
    def build(self):
        ratio = self.rng.randrange(1, 4)
        return (
            SparseAllocator(
                self.num_pages * self.page_size,
                self.page_size,
                host_to_device_ratio=ratio,
                need_sort=self.need_sort,
            ),
            oracle_sides.Sparse(self.num_pages, self.page_size, ratio, need_sort=self.need_sort),
        )

    def operations(self):
        return [*super().operations(), "extend_logical", "extend_logical"]

    def extend(self) -> None:
        held, self.requests = (
            self.requests,
            [
                slots
                for slots in self.requests
                if len(slots) % self.page_size == 0 or slots[-1] in self.oracle.peer
            ],
        )
        waiting = [slots for slots in held if not any(slots is each for each in self.requests)]
        super().extend()
        self.requests += waiting

    def extend_logical(self) -> None:
        batch, prefix_lens, seq_lens, last = self.growing()
        mine = self.pool.alloc_logical_only(ids(prefix_lens), ids(seq_lens), ids(last))
        new_lens = [after - before for before, after in zip(prefix_lens, seq_lens, strict=True)]
        meant = self.oracle.extend_logical(prefix_lens, seq_lens, last)
        self.agree(batch, new_lens, listed(mine), meant)


class InterleavedPair(Pair):
    def build(self):
        ranks = self.rng.randrange(2, 6)
        self.bases: list[tuple[list[int], int]] = []
        return (
            InterleavedAllocator(
                self.num_pages * self.page_size,
                self.page_size,
                shard_size=ranks,
                need_sort=self.need_sort,
            ),
            oracle_sides.Interleaved(
                self.num_pages, self.page_size, ranks, need_sort=self.need_sort
            ),
        )

    def state(self):
        return self.pool.free_pages().tolist(), self.pool.class_counts()

    def operations(self):
        frees = ["free", "free_segment", "free_pages"] if self.requests else []
        return ["extend"] * 6 + frees + ["merge", "group"]

    def extend(self) -> None:
        whole = [slots for slots in self.requests if len(slots) % self.page_size == 0]
        batch = [*self.rng.sample(whole, self.rng.randrange(len(whole) + 1)), []]
        prefix_lens = [len(slots) for slots in batch]
        seq_lens = [length + self.new_len() + 1 for length in prefix_lens]
        last = [slots[-1] if slots else -1 for slots in batch]
        bases = [self.base_of(slots) for slots in batch]
        mine = list(bases)
        got = self.pool.alloc_extend(
            ids(prefix_lens), ids(seq_lens), ids(last), rotation_bases=mine
        )
        meant, used = self.oracle.extend(prefix_lens, seq_lens, bases)
        assert mine == used
        new_lens = [after - before for before, after in zip(prefix_lens, seq_lens, strict=True)]
        self.agree(batch, new_lens, listed(got), meant)

    def base_of(self, slots) -> int | None:
        return slots[0] // self.page_size % self.oracle.ranks if slots else None

    def free_segment(self) -> None:
        slots = self.leaving()
        self.pool.free_segment(ids(slots), start_pos=0)
        self.oracle.give(slots)

    def free_pages(self) -> None:
        slots = self.leaving()
        self.pool.free_page_ids(ids(slots[:: self.page_size]) // self.page_size)
        self.oracle.give(slots)
