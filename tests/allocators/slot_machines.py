"""State slots and request rows: what a request owns once."""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvplan.allocators.slots import StateSlotAllocator
from kvplan.errors import PoolError
from kvplan.pools.rows import RequestRows
from kvplan.pools.storage import open_storage
from tests.allocators.machine import ids


class OwnedMachine(RuleBasedStateMachine):
    """Whole numbers handed out and taken back."""

    steps: ClassVar[int] = 0

    def build(self, size):
        raise NotImplementedError

    def take(self, need):
        raise NotImplementedError

    def give(self, numbers):
        raise NotImplementedError

    def free(self):
        raise NotImplementedError

    @initialize(size=st.integers(0, 12))
    def start(self, size):
        self.size = size
        self.pool = self.build(size)
        self.held = []

    @rule(need=st.integers(-1, 6))
    def alloc(self, need):
        before = self.free()
        if need < 0:
            with pytest.raises(PoolError):
                self.take(need)
            assert self.free() == before
            return
        got = self.take(need)
        assert (got is not None) == (need <= len(before))
        assert got is not None or self.free() == before
        assert not set(got or []) & set(self.held)
        self.held += got or []

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def free_some(self, data):
        given = data.draw(st.lists(st.sampled_from(self.held), unique=True, min_size=1))
        self.give(given)
        self.held = [number for number in self.held if number not in given]
        before = self.free()
        with pytest.raises(PoolError):
            self.give(given)
        assert self.free() == before

    @rule(number=st.sampled_from([-1, 0, 10_000]))
    def free_what_is_not_there(self, number):
        before = self.free()
        with pytest.raises(PoolError):
            self.give([number])
        assert self.free() == before

    @rule()
    def clear(self):
        self.pool.clear()
        self.held = []

    @invariant()
    def nothing_is_lost_or_held_twice(self):
        type(self).steps += 1
        assert self.pool.verify_accounting() == []
        assert sorted(self.free() + self.held) == list(range(1, self.size + 1))


class StateSlotMachine(OwnedMachine):
    def build(self, size):
        return StateSlotAllocator(size)

    def take(self, need):
        slots = self.pool.alloc(need)
        return None if slots is None else slots.tolist()

    def give(self, numbers):
        self.pool.free(ids(numbers))

    def free(self):
        return self.pool.free_slots().tolist()

    @rule(size=st.integers(0, 12))
    def resize(self, size):
        self.size = size
        self.pool.resize(size)
        self.held = []

    @rule(requests=st.integers(0, 6), used=st.integers(0, 8))
    def take_one_a_request(self, requests, used):
        before = self.free()
        self.pool.alloc_group_begin(requests)
        assert len(before) - self.pool.available_size() in (0, requests)
        for _ in range(used):
            slot = self.pool.alloc(1)
            if slot is not None:
                assert slot.item() not in self.held
                self.held += slot.tolist()
        self.pool.alloc_group_end()


class RowMachine(OwnedMachine):
    def build(self, size):
        self.generations = [0] * (size + 1)
        first = size // 2
        return RequestRows(first, 4, storage=open_storage("cpu"), pre_alloc_rows=size - first)

    def take(self, need):
        rows = self.pool.alloc_rows(need)
        for row in rows or []:
            self.generations[row] += 1
        return rows

    def give(self, numbers):
        self.pool.free_rows(numbers)

    def free(self):
        return list(self.pool.free_list)

    @invariant()
    def generations_only_go_up(self):
        assert self.pool.req_generation.tolist() == self.generations
