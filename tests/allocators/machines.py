"""The allocators under test, each with what only it can do."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from kvplan.allocators.compressed import CompressedAllocator
from kvplan.allocators.interleaved import InterleavedAllocator
from kvplan.allocators.paged import PagedAllocator
from kvplan.allocators.ring import RingAllocator
from kvplan.allocators.sliding import SlidingAllocator
from kvplan.allocators.sparse import SparseAllocator
from kvplan.allocators.token import TokenAllocator
from kvplan.pools.rows import RequestRows
from kvplan.pools.storage import open_storage
from kvplan.units import ceil_div
from tests.allocators.machine import Machine, ids


class TokenMachine(Machine):
    page_sizes: ClassVar[list[int]] = [1]

    def build(self, num_pages, *, need_sort):
        return TokenAllocator(num_pages, need_sort=need_sort)


class PagedMachine(Machine):
    def build(self, num_pages, *, need_sort):
        return PagedAllocator(num_pages * self.page_size, self.page_size, need_sort=need_sort)


class RingMachine(Machine):
    def build(self, num_pages, *, need_sort):
        self.rows = RequestRows(3, 1, storage=open_storage("cpu"))
        return RingAllocator(
            num_pages * self.page_size,
            self.page_size,
            ring_size=5,
            rows=self.rows,
            need_sort=need_sort,
        )

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def leave_the_window(self, data):
        before = self.state()
        self.pool.free_swa(ids(data.draw(st.sampled_from(self.requests), "request")))
        assert self.state() == before

    @rule()
    def take_or_give_a_row(self):
        taken = self.rows.num_rows - self.rows.available_size()
        if taken:
            self.rows.clear()
        else:
            self.rows.alloc_rows(2)

    @invariant()
    def the_sliding_side_counts_rows(self):
        cost = ceil_div(5, self.page_size) * self.page_size
        assert self.pool.swa_available_size() == self.rows.available_size() * cost
        assert self.pool.size_swa == 3 * cost


class SlidingMachine(Machine):
    """Requests whose first pages may have lost their sliding part: `gone` counts their tokens."""

    page_sizes: ClassVar[list[int]] = [1, 4, 16]

    def build(self, num_pages, *, need_sort):
        self.gone = {}
        return SlidingAllocator(
            num_pages * self.page_size,
            self.swa_pages(num_pages) * self.page_size,
            self.page_size,
            need_sort=need_sort,
        )

    def swa_pages(self, num_pages):
        return ceil_div(2 * num_pages, 3)

    def resized(self, num_pages):
        self.pool.resize(num_pages * self.page_size, self.swa_pages(num_pages) * self.page_size)

    def state(self):
        return (
            self.pool.full_available_size(),
            self.pool.swa_available_size(),
            self.pool.full_to_swa.tolist(),
        )

    def free_tokens(self):
        return self.pool.full_available_size()

    def gone_of(self, slots):
        """Leading tokens without a sliding part; slots in other hands have it again."""
        return next((at for at, slot in enumerate(slots) if slot not in self.gone), len(slots))

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def leave_the_window(self, data):
        slots = data.draw(st.sampled_from(self.requests), "request")
        start = self.gone_of(slots)
        whole = (len(slots) - 1) // self.page_size * self.page_size
        first = start // self.page_size
        stop = data.draw(st.integers(first, max(first, whole // self.page_size)))
        leaving = slots[start : stop * self.page_size]
        if data.draw(st.booleans(), "segment"):
            self.pool.free_swa_segment(ids(leaving), start_pos=start)
        else:
            self.pool.free_swa(ids(leaving))
        self.gone.update(dict.fromkeys(leaving))
        if leaving:
            self.refused(lambda: self.pool.free_swa(ids(leaving)))
            self.refused(lambda: self.pool.free_segment(ids(leaving), start_pos=start))

    @rule(data=st.data())
    def extend_with_a_tail(self, data):
        seq_len = data.draw(st.integers(1, 5 * self.page_size), "seq_len")
        start = data.draw(st.integers(0, seq_len // self.page_size), "start") * self.page_size
        tail = seq_len - start
        room = ceil_div(seq_len, self.page_size) * self.page_size <= self.pool.full_available_size()
        room &= ceil_div(tail, self.page_size) * self.page_size <= self.pool.swa_available_size()
        request: list[int] = []
        if self.grow(
            [request],
            [seq_len],
            room,
            lambda: self.pool.alloc_extend_swa_tail(
                ids([0]), ids([seq_len]), ids([-1]), swa_tail_len=tail
            ),
        ):
            self.gone.update(dict.fromkeys(request[:start]))

    def grow(self, requests, new_lens, fits, call):
        lens = [len(request) for request in requests]
        done = super().grow(requests, new_lens, fits, call)
        for request, old_len in zip(requests, lens, strict=True):
            for slot in request[old_len:]:
                self.gone.pop(slot, None)
        return done

    def give_back(self, slots):
        """As the scheduler does: what lost its sliding part apart from the rest."""
        gone = self.gone_of(slots)
        self.pool.free_full(ids(slots[:gone]))
        self.pool.free(ids(slots[gone:]))
        self.drop(slots)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def free_one(self, data):
        slots = self.pop(data)
        if self.page_size > 1 and data.draw(st.booleans(), "whole"):
            self.pool.free(ids(slots))
            self.drop(slots)
        else:
            self.give_back(slots)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def free_segment(self, data):
        slots = self.pop(data)
        gone = self.gone_of(slots)
        first = gone // self.page_size
        cut = data.draw(st.integers(first, max(first, len(slots) // self.page_size)))
        cut *= self.page_size
        self.pool.free_segment(ids(slots[cut:]), start_pos=cut)
        self.drop(slots[cut:])
        if cut:
            self.requests.append(slots[:cut])

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def free_two_segments(self, data):
        slots = self.pop(data)
        gone = self.gone_of(slots)
        self.pool.free_full_segment(ids(slots[:gone]), start_pos=0)
        self.pool.free_segments([(ids(slots[gone:]), gone)])
        self.drop(slots)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def free_pages(self, data):
        slots = self.pop(data)
        gone = self.gone_of(slots)
        self.pool.free_full(ids(slots[:gone]))
        self.pool.free_page_ids(ids(slots[gone :: self.page_size]) // self.page_size)
        self.drop(slots)

    @precondition(lambda self: self.requests and not self.in_group)
    @rule(data=st.data())
    def free_twice(self, data):
        slots = self.pop(data)
        self.give_back(slots)
        self.refused(lambda: self.pool.free(ids(slots)))
        self.refused(lambda: self.pool.free_full(ids(slots)))

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def lose_the_sliding_part(self, data):
        slots = data.draw(st.sampled_from(self.requests), "request")
        live = slots[self.gone_of(slots) :]
        if live:
            self.refused(lambda: self.pool.free_full(ids(live)))

    @rule(data=st.data())
    def free_what_is_not_there(self, data):
        end = self.pool.full.size + self.page_size
        slot = data.draw(st.sampled_from([-1, 0, self.page_size - 1, end]))
        self.refused(lambda: self.pool.free(ids([slot])))

    @invariant()
    def nothing_is_lost(self):
        held = [slot for slots in self.requests for slot in slots] + self.leaving
        pages = {slot // self.page_size for slot in held}
        assert self.free_tokens() + len(pages) * self.page_size == self.pool.full.size

    @invariant()
    def every_slot_in_the_window_has_a_peer_of_its_own(self):
        peers = []
        for slots in self.requests:
            gone = self.gone_of(slots)
            mapped = self.pool.to_swa(ids(slots)).tolist()
            assert mapped[:gone] == [0] * gone
            assert all(peer > 0 for peer in mapped[gone:])
            peers += mapped[gone:]
        assert len(set(peers)) == len(peers)
        assert self.pool.to_swa(ids([-1])).tolist() == [-1]


class CompressedMachine(SlidingMachine):
    page_sizes: ClassVar[list[int]] = [8, 16]

    def build(self, num_pages, *, need_sort):
        self.gone = {}
        return CompressedAllocator(
            num_pages * self.page_size,
            self.swa_pages(num_pages) * self.page_size,
            self.page_size,
            ratios=(4, 8),
            need_sort=need_sort,
        )

    @invariant()
    def each_whole_block_has_one_compressed_slot(self):
        for ratio in (4, 8):
            written = []
            for slots in self.requests:
                blocks = self.pool.compressed_slots(ids(slots), ratio).tolist()
                assert len(blocks) == len(slots) // ratio
                written += blocks
            assert len(set(written)) == len(written)
            assert all(
                slot < self.pool.pool_sizes()[f"c{ratio}"] + self.page_size // ratio
                for slot in written
            )


class InterleavedMachine(Machine):
    page_sizes: ClassVar[list[int]] = [2, 4, 16]
    least_new = 1

    def build(self, num_pages, *, need_sort):
        self.shard_size = 2 + num_pages % 3
        return InterleavedAllocator(
            num_pages * self.page_size,
            self.page_size,
            shard_size=self.shard_size,
            need_sort=need_sort,
        )

    def first_page(self):
        return self.shard_size

    def free_tokens(self):
        return self.pool.aggregate_available_size()

    def can_extend(self, slots):
        return len(slots) % self.page_size == 0

    def extend(self, requests, new_lens):
        """The classes that each request's pages fall into, counted page by page."""
        counts = self.pool.class_counts()
        bases = []
        for slots, new_len in zip(requests, new_lens, strict=True):
            first = len(slots) // self.page_size
            if slots:
                base = slots[0] // self.page_size % self.shard_size
            else:
                base = counts.index(max(counts))
            for page in range(first, first + ceil_div(new_len, self.page_size)):
                counts[(base + page) % self.shard_size] -= 1
            bases.append(base)
        prefix = [len(slots) for slots in requests]
        seq = [a + b for a, b in zip(prefix, new_lens, strict=True)]
        last = [slots[-1] if slots else -1 for slots in requests]
        given = [base if slots else None for base, slots in zip(bases, requests, strict=True)]
        asked = list(given)
        done = self.grow(
            requests,
            new_lens,
            min(counts) >= 0,
            lambda: self.pool.alloc_extend(ids(prefix), ids(seq), ids(last), rotation_bases=given),
        )
        assert given == (bases if done else asked)

    @rule()
    def go_on_at_another_rank(self):
        for slots in self.requests:
            if self.can_extend(slots):
                wrong = [slots[0] // self.page_size + 1]
                grown = [len(slots)], [len(slots) + 1], [slots[-1]]
                self.refused(
                    lambda grown=grown, wrong=wrong: self.pool.alloc_extend(
                        *map(ids, grown), rotation_bases=wrong
                    )
                )

    @rule(num_pages=st.integers(0, 4), first=st.integers(0, 7))
    def alloc_pages(self, num_pages, first):
        need = num_pages * self.page_size
        counts = self.pool.class_counts()
        for page in range(num_pages):
            counts[(first + page) % self.shard_size] -= 1
        self.grow([[]], [need], min(counts) >= 0, lambda: self.pool.alloc_cyclic(first, need))

    @rule()
    def decode_some(self):
        self.refused(lambda: self.pool.alloc_decode(ids([1]), ids([-1])))
        self.refused(lambda: self.pool.alloc(self.page_size))

    @invariant()
    def chains_go_round_the_ranks(self):
        for slots in self.requests:
            ranks = [slot // self.page_size % self.shard_size for slot in slots[:: self.page_size]]
            assert all((b - a) % self.shard_size == 1 % self.shard_size for a, b in pairwise(ranks))


class SparseMachine(Machine):
    """Requests may hold device slots, lose them to a buffer, or never have had any."""

    page_sizes: ClassVar[list[int]] = [1, 4, 16]

    def build(self, num_pages, *, need_sort):
        self.buffers = []
        return SparseAllocator(
            num_pages * self.page_size,
            self.page_size,
            host_to_device_ratio=2,
            need_sort=need_sort,
        )

    def state(self):
        return (
            self.pool.logical_available_size(),
            self.pool.device_available_size(),
            self.pool.logical_to_device.tolist(),
        )

    def free_tokens(self):
        return self.pool.logical_available_size()

    def drop(self, slots):
        """Nothing waits for the group's end."""

    def decode_fits(self, num_pages):
        return num_pages * self.page_size <= self.pool.logical_available_size()

    def can_extend(self, slots):
        return len(slots) % self.page_size == 0 or self.pool.to_device(ids(slots[-1:])).item() > 0

    @rule(data=st.data())
    def extend_logically(self, data):
        batch = [*self.pick(data, 2), []]
        lens = [data.draw(st.integers(0, 3 * self.page_size), "new_len") for _ in batch]
        prefix = [len(slots) for slots in batch]
        seq = [a + b for a, b in zip(prefix, lens, strict=True)]
        last = [slots[-1] if slots else -1 for slots in batch]
        need = sum(self.pages_between(a, b) for a, b in zip(prefix, seq, strict=True))
        self.grow(
            batch,
            lens,
            self.decode_fits(need),
            lambda: self.pool.alloc_logical_only(ids(prefix), ids(seq), ids(last)),
        )

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def go_on_without_device_slots(self, data):
        slots = data.draw(st.sampled_from(self.requests), "request")
        if not self.can_extend(slots):
            grown = [len(slots)], [len(slots) + 1], [slots[-1]]
            self.refused(lambda: self.pool.alloc_extend(*map(ids, grown)))

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), num_pages=st.integers(0, 5))
    def take_a_buffer(self, data, num_pages):
        slots = data.draw(st.sampled_from(self.requests), "request")
        held = {slot // self.page_size for slot in self.pool.to_device(ids(slots)).tolist() if slot}
        before = self.state()
        buffer = self.pool.alloc_device_buffer(ids(slots), num_pages * self.page_size)
        fits = num_pages * self.page_size <= before[1] + len(held) * self.page_size
        assert (buffer is not None) == fits
        if buffer is None:
            assert self.state() == before
        else:
            assert not self.pool.to_device(ids(slots)).any()
            assert len(buffer) == num_pages * self.page_size
            self.buffers.append(buffer)

    @precondition(lambda self: self.buffers)
    @rule()
    def give_the_buffer_back(self):
        self.pool.free_device_buffer(self.buffers.pop())

    @rule(data=st.data())
    def start_afresh(self, data):
        super().start_afresh(data)
        if not self.requests:
            self.pool.clear()
            self.buffers = []
            self.in_group = False

    @invariant()
    def no_device_slot_has_two_owners(self):
        held = [
            slot
            for slots in self.requests
            for slot in self.pool.to_device(ids(slots)).tolist()
            if slot
        ]
        held += [slot for buffer in self.buffers for slot in buffer.tolist()]
        assert len(set(held)) == len(held)
        assert all(slot >= self.page_size for slot in held)
        pages = {slot // self.page_size for slot in held}
        total = self.pool.device_side.size
        assert self.pool.device_available_size() + len(pages) * self.page_size == total
