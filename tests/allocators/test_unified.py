"""Pools that share a byte buffer: what fits, who moves, and where a slot's bytes are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kvplan.allocators.band import BandSpec
from kvplan.allocators.shared_buffer import SharedBuffer
from kvplan.allocators.unified import UnifiedAllocator
from tests.allocators.machine import ids

CPU = torch.device("cpu")


def unified(total_bytes: int, page_size: int = 1, **options: Any) -> Any:
    sizes = {"full_token_bytes": 4, "swa_token_bytes": 2} | options
    return UnifiedAllocator(total_bytes, page_size, **sizes)


@pytest.mark.parametrize(
    ("total_bytes", "page_size", "sizes", "tokens"),
    [
        # 4 bytes of padding, then 6 bytes a token
        (4 + 6 * 10, 1, {}, 10),
        # the sliding side starts on its own page: 16 bytes of padding are 2 pages of 8
        (16 + 24 * 6, 4, {}, 24),
        # full pages end on their own page: 8 bytes at the top are lost, and a pair with them
        (16 + 24 * 6 + 8, 4, {}, 24),
        (16 + 24 * 5, 4, {}, 16),
        (100, 1, {"swa_token_bytes": 0, "state_slot_bytes": 10}, 22),
    ],
)
def test_an_empty_buffer_holds_what_its_bytes_say(total_bytes, page_size, sizes, tokens):
    pool = unified(total_bytes, page_size, **sizes)

    assert pool.size == pool.available_size() == tokens
    assert pool.alloc(tokens + page_size) is None
    assert pool.alloc(tokens) is not None
    assert pool.available_size() == 0


def test_one_side_takes_what_the_other_does_not():
    pool = unified(4 + 6 * 10)
    slots = pool.alloc(10)
    pool.free_swa(slots[:6])

    # 12 bytes came back: 2 tokens of 6
    assert pool.available_size() == 2
    assert pool.full_available_size() == 3
    assert pool.swa_available_size() == 6
    assert pool.alloc(2) is not None


def test_the_two_ends_grow_towards_each_other():
    pool = unified(4 + 6 * 10)
    slots = pool.alloc(3)

    assert pool.to_swa(slots).tolist() == [2, 3, 4]
    assert pool.to_full(slots).tolist() == [15, 14, 13]
    assert pool.to_full(ids([0, -1])).tolist() == [0, 0]
    assert pool.to_swa(ids([0, -1])).tolist() == [0, 0]


def test_pages_move_only_when_the_gap_is_too_small():
    moves: list[Any] = []
    pool = unified(4 + 6 * 10, move=moves.append)
    slots = pool.alloc(10)
    pool.free(slots[:4])

    pool.alloc(4)
    assert moves == []

    pool.free(slots[4:9])
    pool.free_swa(slots[9:])
    assert pool.alloc_extend_swa_tail(ids([0]), ids([6]), ids([-1]), swa_tail_len=1) is not None
    assert [(move.band, len(move.source)) for move in moves] == [("full", 1)]
    assert pool.verify_accounting() == []


def test_the_middle_waits_until_the_ends_withdrew():
    """State grows into the sliding pages, whose new place is still full pages' old one."""
    specs = [BandSpec("state", 10), BandSpec("swa", 10), BandSpec("full", 10)]
    memory = torch.zeros(200, dtype=torch.int64)

    def move(moved):
        for source, target in zip(moved.source.tolist(), moved.target.tolist(), strict=True):
            memory[target * 10 : target * 10 + 10] = memory[source * 10 : source * 10 + 10].clone()

    shared = SharedBuffer(specs, 200, device=CPU, move=move)
    bands = shared.bands
    for name, pages in (("state", [1]), ("swa", [1, 2, 3, 4, 5]), ("full", list(range(1, 14)))):
        assert shared.make_room({name: len(pages)})
        physical = bands[name].bind(ids(pages))
        for page, place in zip(pages, physical.tolist(), strict=True):
            memory[place * 10 : place * 10 + 10] = (
                page + {"state": 100, "swa": 200, "full": 300}[name]
            )
    bands["full"].unbind(ids([1, 2, 3, 4, 5, 6]))

    assert shared.make_room({"state": 6})
    bands["state"].bind(ids([2, 3, 4, 5, 6, 7]))
    assert shared.verify_accounting() == []
    for name, pages, mark in (("swa", [1, 2, 3, 4, 5], 200), ("full", list(range(7, 14)), 300)):
        for page in pages:
            place = int(bands[name].virtual_to_physical[page])
            assert (memory[place * 10 : place * 10 + 10] == mark + page).all()


def test_states_and_tokens_share_the_bytes():
    pool = unified(10 + 100, swa_token_bytes=0, full_token_bytes=2, state_slot_bytes=10)
    states = pool.state_slots

    assert (pool.size, states.size) == (50, 10)
    taken = states.alloc(4)
    assert pool.available_size() == 30
    assert pool.alloc(25) is not None
    assert (states.available_size(), pool.available_size()) == (1, 5)
    assert states.alloc(2) is None
    states.free(taken)
    assert states.available_size() == 5
    assert pool.verify_accounting() == []


def test_a_resize_starts_afresh():
    pool = unified(4 + 6 * 10, state_slot_bytes=3)
    pool.alloc(5)
    pool.state_slots.alloc(1)
    pool.resize(4 + 6 * 20)

    assert pool.available_size() == pool.size == 20
    assert pool.verify_accounting() == []


def test_what_is_pre_allocated_is_priced_in_bytes():
    pool = unified(4 + 6 * 10)

    assert pool.prealloc_ceiling_fits(15, 0)
    assert not pool.prealloc_ceiling_fits(15, 1)
    assert pool.prealloc_ceiling_fits(10, 10)
    pool.alloc(5)
    assert pool.prealloc_ceiling_fits(10, 10)
    assert pool.prealloc_fits(5, 5, full_budget_tokens=100)
    assert not pool.prealloc_fits(6, 5, full_budget_tokens=100)
    # the scheduler holds 3 of the 7 full tokens back
    assert pool.prealloc_fits(4, 0, full_budget_tokens=4)
    assert not pool.prealloc_fits(5, 0, full_budget_tokens=4)


def test_a_prompt_that_the_buffer_never_holds_is_known_before():
    pool = unified(4 + 6 * 10)

    assert pool.max_new_tokens_for_memory(11, 5, token_capacity=1000) is None
    assert pool.max_new_tokens_for_memory(4, 50, token_capacity=1000) == 4
