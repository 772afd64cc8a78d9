"""What pages are said to be, on states that were made so; figures by hand on one of them."""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kvplan.report.address import request_spot, slot_spot
from kvplan.report.occupancy import (
    CODES,
    PageClass,
    PoolMap,
    occupancy_report,
    pool_maps,
    reported_map,
)
from kvplan.state.ownership import holders
from kvplan.state.recorded import Recorded, load_state, parse_state, state_text
from tests.conftest import REPOSITORY
from tests.state.random_states import made_state

STATES = REPOSITORY / "tests" / "data" / "states"
SEEDS = st.integers(0, 1 << 30)


def read(seed: int) -> tuple[Recorded, Any]:
    made = made_state(seed)
    return parse_state(state_text(made.state), "state.json"), made


@given(SEEDS)
def test_every_page_is_what_it_was_made_to_be(seed: int):
    recorded, made = read(seed)
    mapped = pool_maps(recorded)[0]

    told = [what for what, _, count in mapped.runs() for _ in range(count)]

    assert told == made.classes
    assert mapped.num_pages == len(made.classes) - 1
    assert [first for _, first, _ in mapped.runs()] == sorted(
        first for _, first, _ in mapped.runs()
    )


@given(SEEDS)
def test_tokens_and_pages_add_up(seed: int):
    recorded, made = read(seed)
    report = occupancy_report(recorded)

    for pool in report["pools"]:
        pages = pool["pages"]
        assert sum(pages[each] for each in PageClass) == pages["total"] + 1
        assert pool["free"]["pages"] == pages["free"] + pages["staged"]
        held = pages["used"] + pages["shared"] + pages["cached"]
        assert pool["tokens"]["held"] + pool["tokens"]["wasted"] == held * pool["page_size"]
        assert 0 <= pool["free"]["fragmentation"] <= 1
        assert reported_map(json.loads(json.dumps(pool))) in pool_maps(recorded)
    assert report["lost_pages"] == Counter(made.classes)[PageClass.LOST] + sum(
        pool["pages"]["lost"] for pool in report["pools"][1:]
    )
    owned = sum(each["wasted_tokens"] for each in report["requests"])  # tails are the requests' own
    assert report["pools"][0]["tokens"]["wasted"] == owned


@given(SEEDS)
def test_positions_and_slots_lead_to_each_other(seed: int):
    recorded, made = read(seed)

    for rid, slots in made.slots.items():
        for position, slot in enumerate(slots):
            spot = request_spot(recorded, rid, position)
            found = [(each.request.rid, each.position) for each in holders(recorded.state, slot)]
            assert spot.slot == slot
            assert (rid, position) in found
            back = slot_spot(recorded, slot)
            assert back.sliding_slot == spot.sliding_slot
            if len(found) == 1:
                assert back == spot


@given(SEEDS, st.integers(1, 80))
def test_cells_show_a_lost_page_and_cover_every_page_once(seed: int, most: int):
    recorded, _ = read(seed)
    mapped = pool_maps(recorded)[0]

    per_cell, cells = mapped.cells(most)

    assert len(cells) <= most
    assert (len(cells) - 1) * per_cell < len(mapped.codes) <= len(cells) * per_cell
    assert (PageClass.LOST in cells) == (mapped.count(PageClass.LOST) > 0)


def test_figures_by_hand():
    """98 pages of 16 are held; the requests' last ones have 5, 14, 6 and 10 slots to spare."""
    report = occupancy_report(load_state(STATES / "paged.json"))
    pool = report["pools"][0]

    assert pool["pages"] == {
        "padding": 1, "used": 40, "shared": 48, "cached": 10, "free": 142, "staged": 16,
        "lost": 0, "total": 256,
    }  # fmt: skip
    assert pool["tokens"] == {"capacity": 4096, "held": 1533, "wasted": 35}
    assert pool["free"] == {
        "pages": 158, "runs": 4, "longest_run_pages": 134, "fragmentation": 0.1519,
    }  # fmt: skip
    assert [each["wasted_tokens"] for each in report["requests"]] == [5, 14, 6, 10]
    assert report["rows"] == {"total": 16, "held": 4, "free": 12}
    assert report["lost_pages"] == 0


def test_a_long_run_takes_no_memory_of_its_own():
    pages = 1 << 20

    for what in PageClass:
        mapped = PoolMap("kv", 1, CODES[what] * pages, 0)
        tracemalloc.start()
        runs = list(mapped.runs())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

        assert runs == [(what, 0, pages)]
        assert peak < pages // 4, what
