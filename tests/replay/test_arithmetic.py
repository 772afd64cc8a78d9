"""The scheduler's small rules, worked out by hand."""

from __future__ import annotations

import pytest

from kvplan.replay.calendar import Calendar
from kvplan.replay.estimate import expected_new
from kvplan.replay.eviction import EvictionQueue
from kvplan.replay.keys import OwnKey
from kvplan.replay.prefix_cache import PrefixCache
from kvplan.replay.retraction import retraction_order
from kvplan.replay.sequence import Sequence
from kvplan.replay.sliding_budget import sliding_demand
from kvplan.replay.sliding_store import kept_window


@pytest.mark.parametrize(
    ("max_new", "outputs", "expected"),
    [(100, 0, 100), (100, 30, 70), (100, 200, 0), (9000, 10, 4096), (9000, 8000, 1000)],
)
def test_admission_reckons_with_what_is_left_of_a_wish(max_new, outputs, expected):
    assert expected_new(max_new, outputs) == expected


@pytest.mark.parametrize(
    ("remaining", "new", "chunk", "demand"),
    [
        (10, 20, None, 0 + 30 + 16),  # less than a window in all
        (100, 50, None, (100 - 64) + 64 + 16),  # the prompt overhangs the window
        (100, 50, 80, (80 - 64) + 64 + 16),  # a chunk overhangs by less
        (100, 50, 32, 0 + 64 + 16),
        (0, 500, 32, 0 + 64 + 16),  # nothing to compute: a window of answer
    ],
)
def test_sliding_demand_is_overhang_and_window_and_a_page(remaining, new, chunk, demand):
    assert sliding_demand(remaining, new, window=64, page_size=16, chunk=chunk) == demand


@pytest.mark.parametrize(
    ("window", "page_size", "shared", "kept"),
    [(100, 16, True, 112), (100, 16, False, 100), (8, 16, True, 16), (128, 64, True, 128)],
)
def test_a_shared_window_keeps_whole_pages(window, page_size, shared, kept):
    assert kept_window(window, page_size, shared=shared) == kept


def sequence(rid, prompt_len, outputs):
    no_lock = PrefixCache(1, lambda _: None).no_lock
    made = Sequence(rid, OwnKey(), prompt_len, 1000, 1000, no_lock)
    for _ in range(outputs):
        made.add_first_output()
    return made


def test_few_outputs_go_first_then_long_prompts():
    batch = [sequence(*each) for each in [("a", 50, 3), ("b", 90, 3), ("c", 10, 9), ("d", 50, 3)]]

    kept_first = [each.rid for each in retraction_order(batch)]
    assert kept_first == ["c", "a", "d", "b"]


def test_a_calendar_gives_what_is_due_by_a_tick():
    calendar: Calendar[str] = Calendar()
    for tick, item in [(5, "e"), (3, "c"), (3, "d"), (9, "z")]:
        calendar.add(tick, item)
    calendar.remove(3, "c")

    assert calendar.next_tick() == 3
    assert calendar.at(3) == ["d"]
    assert calendar.take(5) == ["d", "e"]
    assert calendar.next_tick() == 9
    calendar.remove(9, "z")
    assert calendar.next_tick() is None


class Thing:
    def __init__(self, rank):
        self.rank = rank


def test_candidates_go_by_their_latest_rank():
    queue: EvictionQueue[Thing] = EvictionQueue(lambda thing: (0, thing.rank))
    first, second, third = (Thing(rank) for rank in (1, 2, 3))
    for thing in (third, first, second):
        queue.put(thing)
    assert queue.pop() is first

    second.rank = 9
    queue.put(second)
    queue.put(first)
    queue.drop(first)
    assert first not in queue
    assert [queue.pop(), queue.pop(), queue.pop()] == [third, second, None]
