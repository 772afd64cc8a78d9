"""Rows are handed out once, tell later readers so, and carry the state of their requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from kvplan.errors import PoolError
from kvplan.pools.hybrid_rows import (
    HybridRequestRows,
    TrackingPlan,
    decode_state_slots,
)
from kvplan.pools.rows import RequestRows
from kvplan.pools.storage import open_storage
from tests.pools.states import EOS, SLOTS, with_siblings


@dataclass
class Request:
    row: int | None = None
    allocated_tokens: int = 0
    state_slot: Any = None
    tracking: Any = None


def rows(size=4, **options) -> Any:
    return RequestRows(size, 8, storage=open_storage("cpu"), **options)


def hybrid(size=2, *, extra_buffer=True, overlap=True, lazy=False, slots=SLOTS) -> Any:
    storage = open_storage("cpu")
    states = with_siblings(storage) if slots == SLOTS else with_siblings(storage, slots=slots)
    tracking = TrackingPlan.of(extra_buffer=extra_buffer, overlap=overlap, lazy=lazy)
    return HybridRequestRows(size, 8, storage=storage, states=states, tracking=tracking)


def test_rows_come_from_the_tail_and_row_0_never():
    pool = rows()

    assert pool.req_to_token.shape == (5, 8)
    assert pool.req_to_token.dtype == torch.int32
    assert pool.alloc_rows(2) == [3, 4]
    pool.free_rows([4])
    assert pool.alloc_rows(3) == [1, 2, 4]
    assert pool.alloc_rows(0) == []
    assert pool.available_size() == 0


def test_too_many_rows_are_refused_and_nothing_changes():
    pool = rows()
    waiting = [Request() for _ in range(5)]

    assert pool.alloc(waiting) is None
    assert [request.row for request in waiting] == [None] * 5
    assert pool.free_list == [1, 2, 3, 4]
    assert pool.req_generation.tolist() == [0] * 5


def test_generations_go_up_with_each_owner_and_outlive_a_clear():
    pool = rows()
    pool.alloc_rows(4)
    pool.clear()
    pool.alloc_rows(1)

    assert pool.req_generation.tolist() == [0, 1, 1, 1, 2]


def test_a_chunked_prefill_keeps_its_row():
    pool = rows()
    chunked, fresh = Request(), Request()
    pool.alloc([chunked])
    chunked.allocated_tokens = 3

    assert pool.alloc([fresh, chunked]) == [3, 4]
    assert (chunked.row, fresh.row) == (4, 3)
    assert pool.req_generation[4] == 1


def test_a_row_without_kv_is_not_kept():
    pool = rows()
    request = Request()
    pool.alloc([request])

    with pytest.raises(PoolError, match="a request keeps row 4 but owns no KV"):
        pool.alloc([request, Request()])
    assert pool.free_list == [1, 2, 3]


def test_a_decode_node_has_rows_for_requests_on_their_way():
    pool = rows(2, pre_alloc_rows=3)

    assert pool.size == 2
    assert pool.req_to_token.shape == (6, 8)
    assert pool.alloc_rows(5) == [1, 2, 3, 4, 5]


def test_the_hook_and_the_auxiliary_state_follow_the_rows():
    pool = rows()
    seen: list[tuple[Any, ...]] = []

    class Auxiliary:
        def free(self, row):
            seen.append(("freed", row))

        def clear(self):
            seen.append(("cleared",))

    pool.auxiliary = Auxiliary()
    pool.on_alloc_rows = lambda taken: seen.append(("taken", *taken))
    pool.alloc_rows(2)
    pool.alloc_rows(0)
    pool.free_rows([4, 3])
    pool.clear()

    assert seen == [("taken", 3, 4), ("freed", 4), ("freed", 3), ("cleared",)]


def test_slots_are_written_where_their_position_is():
    pool = rows()
    pool.write(torch.tensor([2, 2, 3]), torch.tensor([0, 1, 7]), torch.tensor([40, 41, 9]))

    assert pool.req_to_token[2, :2].tolist() == [40, 41]
    assert pool.req_to_token[3, 7] == 9


@pytest.mark.parametrize(
    ("misuse", "match"),
    [
        (lambda pool: pool.free_rows([0]), "row 0 is the padding row"),
        (lambda pool: pool.free_rows([4, 1]), "row 1 is freed twice"),
        (lambda pool: pool.free_rows([4, 4]), "a row stands twice"),
        (lambda pool: pool.free_rows([9]), "row 9 is freed twice: it is not handed out"),
        (lambda pool: pool.alloc_rows(-1), "cannot allocate -1 rows"),
        (lambda pool: pool.free(Request()), "a request without a row is freed"),
    ],
)
def test_misuse_of_rows_is_refused_before_anything_changes(misuse, match):
    pool = rows()
    pool.alloc_rows(2)

    with pytest.raises(PoolError, match=match):
        misuse(pool)
    assert pool.free_list == [1, 2]
    assert pool.verify_accounting() == []


def test_rows_that_cannot_be_are_refused():
    with pytest.raises(PoolError, match=r"-1 \+ 0 request rows of 8 tokens"):
        rows(-1)


def test_planted_faults_show_in_the_books():
    pool = rows()
    pool.alloc_rows(1)
    pool.free_list.append(4)
    assert pool.verify_accounting() == ["row 4 is free and handed out at once"]
    pool.free_list = [1, 1]
    assert pool.verify_accounting() == [
        "a row stands twice in the free list",
        "row 2 is neither free nor handed out",
        "row 3 is neither free nor handed out",
    ]


@pytest.mark.parametrize(
    ("options", "width", "initial"),
    [
        ({"extra_buffer": False, "overlap": True}, 0, 0),
        ({"extra_buffer": True, "overlap": True}, 2, 2),
        ({"extra_buffer": True, "overlap": False}, 1, 1),
        ({"extra_buffer": True, "overlap": True, "lazy": True}, 2, 1),
        ({"extra_buffer": True, "overlap": False, "lazy": True}, 1, 1),
    ],
)
def test_the_strategy_decides_the_tracking_slots(options, width, initial):
    pool = hybrid(**options)
    request = Request()
    pool.alloc([request])

    assert pool.tracking == TrackingPlan(width=width, initial=initial)
    assert pool.state_slots.available_size() == SLOTS - 1 - initial
    assert request.state_slot.tolist() == [1]
    if width:
        held = list(range(2, 2 + initial))
        assert request.tracking.slots.tolist() == held + [-1] * (width - initial)
        assert pool.tracking_slots_of_row[request.row].tolist() == request.tracking.slots.tolist()
        assert (request.tracking.next, request.tracking.last) == (
            0,
            width - 1 if width == initial else 0,
        )
    else:
        assert request.tracking is None
        assert pool.tracking_slots_of_row is None
    assert pool.state_slot_of_row.tolist() == [0, 0, 1]


def test_a_decode_node_can_always_give_each_row_its_state():
    plan = TrackingPlan.of(extra_buffer=True, overlap=True)

    assert decode_state_slots(4, 10, plan) == 30
    assert decode_state_slots(64, 10, plan) == 64


def test_rows_without_a_state_to_go_with_are_refused_whole():
    pool = hybrid(size=4)
    requests = [Request() for _ in range(3)]

    assert pool.alloc(requests) is None
    assert all(request == Request() for request in requests)
    assert pool.available_size() == 4
    assert pool.state_slots.available_size() == SLOTS
    assert pool.alloc(requests[:2]) == [3, 4]


def test_states_without_a_row_to_go_with_are_refused_whole():
    pool = hybrid(size=1, extra_buffer=False)

    assert pool.alloc([Request(), Request()]) is None
    assert pool.state_slots.available_size() == SLOTS


def test_a_request_keeps_the_state_it_came_with():
    pool = hybrid()
    matched = Request(state_slot=pool.state_slots.alloc(1))
    pool.alloc([matched])

    assert matched.state_slot.tolist() == [1]
    assert matched.tracking.slots.tolist() == [2, 3]
    assert pool.verify_accounting() == []


def test_no_owner_sees_the_state_of_the_last_one_nor_its_siblings():
    pool = hybrid()
    first, second = Request(), Request()
    pool.alloc([first])
    held = torch.cat((first.state_slot, first.tracking.slots))
    for part in pool.states.slot_tensors():
        part.tensor.fill_(7)
    pool.free_state(first)
    pool.free(first)
    pool.alloc([Request()])
    pool.alloc([second])

    again = torch.cat((second.state_slot, second.tracking.slots))
    for part in pool.states.slot_tensors():
        blank = EOS if part.name == "ngram" else 0
        assert (part.tensor.index_select(part.slot_axis, again) == blank).all()
    assert again.tolist() == held.tolist()


def test_state_goes_back_but_for_the_place_that_the_cache_keeps():
    pool = hybrid()
    request = Request()
    pool.alloc([request])
    kept = pool.free_state(request, keep=1)
    pool.free(request)

    assert kept.tolist() == [3]
    assert (request.state_slot, request.tracking, request.row) == (None, None, None)
    assert pool.state_slots.free_slots().tolist() == [4, 5, 6, 1, 2]
    assert not pool.state_slot_of_row.any()
    assert not pool.tracking_slots_of_row.any()


def test_the_state_written_last_is_donated_and_replaced():
    pool = hybrid()
    request = Request()
    pool.alloc([request])
    new = pool.state_slots.alloc(1)

    assert pool.donate_tracking_slot(request, new).tolist() == [3]
    assert request.tracking.slots.tolist() == [2, 4]
    assert pool.tracking_slots_of_row[request.row].tolist() == [2, 4]
    assert pool.other_place(1) == 0


def test_a_lazy_request_takes_its_second_place_when_it_needs_it():
    pool = hybrid(lazy=True)
    request = Request()
    pool.alloc([request])
    pool.set_tracking_slot(request, 1, pool.state_slots.alloc(1))
    assert request.tracking.empty == [False, False]

    freed = request.tracking.slots[:1].clone()
    pool.set_tracking_slot(request, 0, None)
    pool.state_slots.free(freed)
    assert pool.tracking_slots_of_row[request.row].tolist() == [-1, 3]
    assert pool.verify_accounting() == []
    pool.free_state(request)
    assert pool.state_slots.available_size() == SLOTS


@pytest.mark.parametrize(
    ("misuse", "match"),
    [
        (lambda pool, _: pool.free_state(Request()), "the state of row None is freed twice"),
        (lambda pool, request: pool.free_state(request, keep=2), "keeps tracking place 2"),
        (lambda pool, request: pool.free_state(request, keep=1), "keeps tracking place 1"),
        (lambda pool, request: pool.set_tracking_slot(request, 2, None), "no tracking place 2"),
        (lambda pool, _: pool.set_tracking_slot(Request(), 0, None), "tracks no state"),
        (lambda pool, _: pool.layer_index(3), "layer 3 has no recurrent state here"),
    ],
)
def test_misuse_of_states_is_refused(misuse, match):
    pool = hybrid(lazy=True)
    request = Request()
    pool.alloc([request])

    with pytest.raises(PoolError, match=match):
        misuse(pool, request)
    assert request.tracking.slots.tolist() == [2, -1]
    assert pool.verify_accounting() == []


def test_the_layer_map_counts_linear_layers():
    assert [hybrid().layer_index(layer) for layer in (2, 5, 6)] == [0, 1, 2]


def test_clear_takes_rows_and_states_back_and_blanks_the_siblings():
    pool = hybrid()
    pool.alloc([Request(), Request()])
    for part in pool.states.slot_tensors():
        part.tensor.fill_(7)
    pool.clear()

    assert (pool.available_size(), pool.state_slots.available_size()) == (2, SLOTS)
    assert not pool.state_slot_of_row.any()
    for part in pool.states.slot_tensors():
        blank = EOS if part.name == "ngram" else 0
        own = part.tensor.narrow(part.slot_axis, 1, SLOTS)
        assert (own == blank).all()


def test_a_stale_state_slot_shows_in_the_books():
    pool = hybrid()
    first, second = Request(), Request()
    pool.alloc([first, second])
    pool.state_slot_of_row[first.row] = pool.state_slot_of_row[second.row]

    assert pool.verify_accounting() == ["state slot 4 has two owners"]


def test_rows_on_meta_have_their_shapes():
    storage = open_storage("meta")
    pool = HybridRequestRows(
        3,
        8,
        storage=storage,
        states=with_siblings(storage),
        tracking=TrackingPlan.of(extra_buffer=True, overlap=True),
        pre_alloc_rows=1,
    )

    shapes = {
        entry.name: (tuple(entry.tensor.shape), entry.tensor.dtype) for entry in pool.tensors()
    }
    assert shapes == {
        "req_to_token": ((5, 8), torch.int32),
        "req_generation": ((5,), torch.int64),
        "state_slot_of_row": ((5,), torch.int32),
        "tracking_slots_of_row": ((5, 2), torch.int64),
    }
