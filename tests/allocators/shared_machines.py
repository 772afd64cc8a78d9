"""Pools that share bytes, with every live byte stamped so that a wrong move shows."""

from __future__ import annotations

from typing import ClassVar

import torch
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from kvplan.allocators.unified import UnifiedAllocator
from tests.allocators.machine import ids
from tests.allocators.machines import SlidingMachine


class UnifiedMachine(SlidingMachine):
    """Full and sliding pages; `memory` has one number a byte, and each slot's bytes hold its id."""

    page_sizes: ClassVar[list[int]] = [1, 4]
    token_bytes: ClassVar[dict[str, int]] = {"full": 5, "swa": 3}
    state_bytes: ClassVar[int] = 0

    def build(self, num_pages, *, need_sort):  # noqa: ARG002  # holes need no order
        self.gone = {}
        self.states = []
        self.memory = torch.zeros(self.num_bytes(num_pages), dtype=torch.int64)
        return UnifiedAllocator(
            len(self.memory),
            self.page_size,
            full_token_bytes=self.token_bytes["full"],
            swa_token_bytes=self.token_bytes.get("swa", 0),
            state_slot_bytes=self.state_bytes,
            move=self.move,
        )

    def num_bytes(self, num_pages):
        return (num_pages + 2) * self.page_size * sum(self.token_bytes.values()) + 7

    def resized(self, num_pages):
        self.memory = torch.zeros(self.num_bytes(num_pages), dtype=torch.int64)
        self.pool.resize(len(self.memory))

    def move(self, move):
        size = self.pool.shared.bands[move.band].page_bytes
        for source, target in zip(move.source.tolist(), move.target.tolist(), strict=True):
            self.memory[target * size : (target + 1) * size] = self.memory[
                source * size : (source + 1) * size
            ].clone()

    def stamp(self, physical, size, marks):
        for slot, mark in zip(physical.tolist(), marks, strict=True):
            self.memory[slot * size : (slot + 1) * size] = mark

    def assert_stamped(self, physical, size, marks):
        for slot, mark in zip(physical.tolist(), marks, strict=True):
            assert (self.memory[slot * size : (slot + 1) * size] == mark).all()

    def state(self):
        tables = [
            sorted(band.virtual_to_physical.nonzero().flatten().tolist())
            for band in self.pool.shared.bands.values()
        ]
        return self.pool.full_available_size(), self.pool.swa_available_size(), tables

    def fits(self, num_pages):
        return num_pages * self.page_size <= self.pool.available_size()

    def free_tokens(self):
        return self.pool.full.available_size()

    def grow(self, requests, new_lens, fits, call):
        lens = [len(request) for request in requests]
        done = super().grow(requests, new_lens, fits, call)
        for request, old_len in zip(requests, lens, strict=True):
            new = request[old_len:] if done else []
            self.stamp(self.pool.to_full(ids(new)), self.token_bytes["full"], new)
            if "swa" in self.token_bytes:
                bound = self.pool.swa.is_bound(ids(new) // self.page_size).tolist()
                live = [slot for slot, is_bound in zip(new, bound, strict=True) if is_bound]
                marks = [-slot for slot in live]
                self.stamp(self.pool.to_swa(ids(live)), self.token_bytes["swa"], marks)
        return done

    @rule(data=st.data())
    def extend_with_a_tail(self, data):
        seq_len = data.draw(st.integers(1, 5 * self.page_size), "seq_len")
        start = data.draw(st.integers(0, seq_len // self.page_size), "start") * self.page_size
        tail = seq_len - start
        request: list[int] = []
        if self.grow(
            [request],
            [seq_len],
            self.pool.prealloc_fits(seq_len, tail, full_budget_tokens=10**9)
            and seq_len <= self.free_tokens(),
            lambda: self.pool.alloc_extend_swa_tail(
                ids([0]), ids([seq_len]), ids([-1]), swa_tail_len=tail
            ),
        ):
            self.gone.update(dict.fromkeys(request[:start]))

    @rule()
    def compact(self):
        self.pool.compact()

    @rule(data=st.data())
    def start_afresh(self, data):
        super().start_afresh(data)
        if not self.requests:
            self.pool.clear()
            self.states, self.leaving, self.in_group = [], [], False

    @invariant()
    def every_byte_is_where_its_table_says(self):
        for slots in self.requests:
            self.assert_stamped(self.pool.to_full(ids(slots)), self.token_bytes["full"], slots)
            if "swa" in self.token_bytes:
                live = slots[self.gone_of(slots) :]
                marks = [-slot for slot in live]
                self.assert_stamped(self.pool.to_swa(ids(live)), self.token_bytes["swa"], marks)
        if self.states:
            physical = self.pool.state_slots.to_physical(ids(self.states))
            self.assert_stamped(physical, self.state_bytes, [10_000 + s for s in self.states])

    @invariant()
    def every_slot_in_the_window_has_a_peer_of_its_own(self):
        if "swa" not in self.token_bytes:
            return
        for slots in self.requests:
            gone = self.gone_of(slots)
            bound = self.pool.swa.is_bound(ids(slots) // self.page_size).tolist()
            assert bound == [False] * gone + [True] * (len(slots) - gone)

    @rule(data=st.data())
    def free_what_is_not_there(self, data):
        end = self.pool.full.size + self.page_size
        slot = data.draw(st.sampled_from([-1, 0, self.page_size - 1, end]))
        self.refused(lambda: self.pool.free(ids([slot])))


class UnifiedStateMachine(UnifiedMachine):
    """State slots below, sliding pages in the middle, full pages at the top."""

    state_bytes: ClassVar[int] = 11

    @rule(need=st.integers(0, 4))
    def take_states(self, need):
        before = self.state()
        fits = need <= self.pool.state_slots.available_size()
        slots = self.pool.state_slots.alloc(need)
        assert (slots is not None) == fits
        if slots is None:
            assert self.state() == before
            return
        new = slots.tolist()
        assert not set(new) & set(self.states)
        self.states += new
        physical = self.pool.state_slots.to_physical(slots)
        self.stamp(physical, self.state_bytes, [10_000 + slot for slot in new])

    @precondition(lambda self: self.states)
    @rule(data=st.data())
    def give_states_back(self, data):
        slot = self.states.pop(data.draw(st.integers(0, len(self.states) - 1), "state"))
        self.pool.state_slots.free(ids([slot]))
        self.refused(lambda: self.pool.state_slots.free(ids([slot])))


class UnifiedHybridMachine(UnifiedStateMachine):
    """State slots and full pages alone: nothing slides."""

    token_bytes: ClassVar[dict[str, int]] = {"full": 4}

    @rule()
    def leave_the_window(self):
        before = self.state()
        for slots in self.requests:
            self.pool.free_swa(ids(slots))
        assert self.state() == before

    @rule()
    def extend_with_a_tail(self):
        """Nothing has a tail."""

    @rule()
    def lose_the_sliding_part(self):
        """Nothing can be lost."""
