"""A scheduler that does anything in any order, and what must hold after each of its steps."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvplan.allocators.base import Allocator
from kvplan.errors import PoolError
from kvplan.units import ceil_div


def ids(numbers: list[int]) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


class Machine(RuleBasedStateMachine):
    """Requests as lists of their slots by position, over an allocator under test."""

    steps: ClassVar[int] = 0
    page_sizes: ClassVar[list[int]] = [1, 2, 4, 16]
    least_new: ClassVar[int] = 0

    pool: Any

    def build(self, num_pages: int, *, need_sort: bool) -> Allocator:
        raise NotImplementedError

    def resized(self, num_pages: int) -> None:
        self.pool.resize(num_pages * self.page_size)

    @initialize(data=st.data())
    def start(self, data):
        self.page_size = data.draw(st.sampled_from(self.page_sizes), "page_size")
        num_pages = data.draw(st.integers(0, 24), "num_pages")
        self.pool = self.build(num_pages, need_sort=data.draw(st.booleans(), "need_sort"))
        self.requests: list[list[int]] = []
        self.leaving: list[int] = []
        self.in_group = False

    # what the rules share

    def state(self) -> Any:
        """All that a refusal must leave as it was."""
        return self.pool.available_size(), sorted(self.pool.free_pages().tolist())

    def fits(self, num_pages: int) -> bool:
        return bool(num_pages * self.page_size <= self.pool.available_size())

    def decode_fits(self, num_pages: int) -> bool:
        return self.fits(num_pages)

    def can_extend(self, slots: list[int]) -> bool:  # noqa: ARG002
        return True

    def pages_between(self, before: int, after: int) -> int:
        return ceil_div(after, self.page_size) - ceil_div(before, self.page_size)

    def extend(self, requests: list[list[int]], new_lens: list[int]) -> bool:
        """Grow requests; whether there was room, which `fits` must have foretold."""
        prefix = [len(slots) for slots in requests]
        seq = [a + b for a, b in zip(prefix, new_lens, strict=True)]
        last = [slots[-1] if slots else -1 for slots in requests]
        need = sum(self.pages_between(a, b) for a, b in zip(prefix, seq, strict=True))
        return self.grow(
            requests,
            new_lens,
            self.fits(need),
            lambda: self.pool.alloc_extend(ids(prefix), ids(seq), ids(last)),
        )

    def grow(self, requests, new_lens, fits, call) -> bool:
        before = self.state()
        out = call()
        assert (out is not None) == fits
        if out is None:
            assert self.state() == before
            return False
        slots = out.tolist()
        for request, new_len in zip(requests, new_lens, strict=True):
            request += slots[:new_len]
            slots = slots[new_len:]
        assert slots == []
        self.requests += [
            request
            for request in requests
            if request and not any(request is r for r in self.requests)
        ]
        return True

    def drop(self, slots: list[int]) -> None:
        """Slots that were given back: at once, or with the group."""
        if self.in_group:
            self.leaving += slots

    def pick(self, data, most: int) -> list[list[int]]:
        order = data.draw(st.permutations(range(len(self.requests))), "requests")
        return [self.requests[at] for at in order[: data.draw(st.integers(0, most), "batch")]]

    def pop(self, data) -> list[int]:
        return self.requests.pop(data.draw(st.integers(0, len(self.requests) - 1), "request"))

    def refused(self, call) -> None:
        """The call is misuse: it says so and changes nothing."""
        before = self.state()
        with pytest.raises(PoolError):
            call()
        assert self.state() == before

    # rules

    @rule(data=st.data())
    def extend_some(self, data):
        batch = [slots for slots in self.pick(data, 3) if self.can_extend(slots)]
        batch += [[] for _ in range(data.draw(st.integers(0, 2), "new"))]
        lens = st.integers(self.least_new, 3 * self.page_size)
        self.extend(batch, [data.draw(lens, "new_len") for _ in batch])

    @rule(data=st.data())
    def decode_some(self, data):
        batch = self.pick(data, 6)
        lens = [len(slots) + 1 for slots in batch]
        need = sum(self.pages_between(seq_len - 1, seq_len) for seq_len in lens)
        last = [slots[-1] for slots in batch]
        self.grow(
            batch,
            [1] * len(batch),
            self.decode_fits(need),
            lambda: self.pool.alloc_decode(ids(lens), ids(last)),
        )

    @rule(num_pages=st.integers(0, 4))
    def alloc_pages(self, num_pages):
        need = num_pages * self.page_size
        self.grow([[]], [need], self.fits(num_pages), lambda: self.pool.alloc(need))

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def free_one(self, data):
        slots = self.pop(data)
        self.pool.free(ids(data.draw(st.permutations(slots), "order")))
        self.drop(slots)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def free_segment(self, data):
        slots = self.pop(data)
        cut = data.draw(st.integers(0, len(slots) // self.page_size)) * self.page_size
        self.pool.free_segment(ids(slots[cut:]), start_pos=cut)
        self.drop(slots[cut:])
        if cut:
            self.requests.append(slots[:cut])

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def free_two_segments(self, data):
        slots = self.pop(data)
        cut = data.draw(st.integers(0, len(slots) // self.page_size)) * self.page_size
        self.pool.free_segments([(ids(slots[:cut]), 0), (ids(slots[cut:]), cut)])
        self.drop(slots)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def free_pages(self, data):
        slots = self.pop(data)
        self.pool.free_page_ids(ids(slots[:: self.page_size]) // self.page_size)
        self.drop(slots)

    @precondition(lambda self: self.requests and not self.in_group)
    @rule(data=st.data())
    def free_twice(self, data):
        slots = self.pop(data)
        self.pool.free(ids(slots))
        self.refused(lambda: self.pool.free(ids(slots)))
        self.refused(lambda: self.pool.free_segment(ids(slots), start_pos=0))

    @rule(data=st.data())
    def free_what_is_not_there(self, data):
        end = self.pool.size + self.first_page() * self.page_size
        slot = data.draw(st.sampled_from([-1, 0, self.page_size * self.first_page() - 1, end]))
        self.refused(lambda: self.pool.free(ids([slot])))

    @precondition(lambda self: not self.in_group)
    @rule()
    def open_group(self):
        self.pool.free_group_begin()
        self.in_group = True

    @precondition(lambda self: self.in_group)
    @rule()
    def close_group(self):
        self.refused(self.pool.free_group_begin)
        self.pool.free_group_end()
        self.in_group = False
        self.leaving = []

    @rule()
    def merge(self):
        self.pool.merge_and_sort_free()

    @rule(data=st.data())
    def start_afresh(self, data):
        # rarely: it ends whatever the rules have built up
        if data.draw(st.integers(0, 5), "rarely"):
            return
        if data.draw(st.booleans(), "resize"):
            self.resized(data.draw(st.integers(0, 24), "num_pages"))
        else:
            self.pool.clear()
        self.requests, self.leaving, self.in_group = [], [], False

    def first_page(self) -> int:
        return 1

    # what holds after every step

    @invariant()
    def books_are_sound(self):
        type(self).steps += 1
        assert self.pool.verify_accounting() == []

    @invariant()
    def no_slot_has_two_owners(self):
        held = [slot for slots in self.requests for slot in slots]
        assert len(set(held)) == len(held)
        assert all(slot >= self.first_page() * self.page_size for slot in held)
        assert not set(held) & set(self.leaving)

    @invariant()
    def slots_stand_at_the_offset_of_their_position(self):
        for slots in self.requests:
            for position, slot in enumerate(slots):
                assert slot % self.page_size == position % self.page_size
                if position % self.page_size:
                    assert slot == slots[position - 1] + 1

    @invariant()
    def nothing_is_lost(self):
        held = [slot for slots in self.requests for slot in slots] + self.leaving
        pages = {slot // self.page_size for slot in held}
        assert self.free_tokens() + len(pages) * self.page_size == self.pool.size

    def free_tokens(self) -> int:
        return int(self.pool.available_size())
