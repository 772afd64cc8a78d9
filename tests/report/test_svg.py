"""The picture of a state: well-formed, the same every time, a square for every cell."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.report.occupancy import CODES, PageClass, PoolMap, pool_maps
from kvplan.report.svg import (
    CELL,
    COLORS,
    COLUMNS,
    GAP,
    LABELS,
    LETTER,
    MARGIN,
    MOST_ROWS,
    WIDTH,
    occupancy_svg,
    pool_shapes,
)
from kvplan.state.recorded import Recorded, load_state, parse_state, state_text
from tests.conftest import REPOSITORY
from tests.state.random_states import made_state

NAMESPACE = "{http://www.w3.org/2000/svg}"
CLASSES = {color: what for what, color in COLORS.items()}


def squares(recorded: Recorded) -> list[tuple[PageClass, int]]:
    """Class and number of cells of each rectangle of the grids, in order."""
    root = ElementTree.fromstring(occupancy_svg(recorded))
    rectangles = [each for each in root.iter(f"{NAMESPACE}rect") if len(each)]
    return [(CLASSES[each.get("fill", "")], width_of(each)) for each in rectangles]


def width_of(rectangle: ElementTree.Element) -> int:
    width = int(rectangle.get("width", "0")) + GAP
    left = int(rectangle.get("x", "0")) - MARGIN - LABELS
    assert width % CELL == left % CELL == 0
    assert left + width <= COLUMNS * CELL
    return width // CELL


@given(st.integers(0, 1 << 30))
def test_every_cell_has_a_square_of_its_class(seed: int):
    recorded = parse_state(state_text(made_state(seed).state), "state.json")
    shown: Counter[PageClass] = Counter()
    for what, count in squares(recorded):
        shown[what] += count

    cells = [cell for each in pool_maps(recorded) for cell in each.cells(COLUMNS * MOST_ROWS)[1]]

    assert shown == Counter(cells)


def test_the_picture_is_the_same_every_time():
    recorded = load_state(REPOSITORY / "tests" / "data" / "states" / "sliding.json")

    picture = occupancy_svg(recorded)

    assert picture == occupancy_svg(recorded)
    assert "<title>Occupancy of the pools at step 2,040</title>" in picture
    assert "sliding: 40 of 204 pages held (19.6%)" in picture
    assert "<title>pages 35–40: cached</title>" in picture


def test_the_documented_picture_is_what_is_drawn():
    recorded = load_state(REPOSITORY / "tests" / "data" / "states" / "sliding.json")

    shown = (REPOSITORY / "docs" / "images" / "occupancy.svg").read_text(encoding="utf-8")

    assert shown == occupancy_svg(recorded)


def lines_of(pool: PoolMap) -> list[tuple[int, int, str, str]]:
    """Left, baseline, kind and words of each text."""
    shapes, _ = pool_shapes(pool, 0)
    root = ElementTree.fromstring(f"<svg>{''.join(shapes)}</svg>")
    return [
        (int(each.get("x", "")), int(each.get("y", "")), each.get("class", ""), each.text or "")
        for each in root.iter("text")
    ]


@pytest.mark.parametrize("pages", [1, 1_000, 2_000_000])
def test_words_of_any_pool_lie_inside_the_picture(pages: int):
    lost_and_free = CODES[PageClass.FREE] + CODES[PageClass.LOST]
    codes = b"".join(CODES[what] * pages for what in PageClass) + lost_and_free * (pages // 2)
    lines = lines_of(PoolMap("sliding", 16, codes, 0))

    assert all(left + LETTER * len(words) <= WIDTH for left, _, _, words in lines)
    assert all(
        left + LETTER * len(words) <= MARGIN + LABELS
        for left, _, kind, words in lines
        if kind == "n"
    )
    spoken = " ".join(words for *_, words in lines)
    assert all(f"{what} " in spoken for what in PageClass)
    by_line: dict[int, list[tuple[int, str]]] = {}
    for left, baseline, _, words in lines:
        by_line.setdefault(baseline, []).append((left, words))
    for entries in by_line.values():
        for (left, words), (after, _) in pairwise(sorted(entries)):
            assert left + LETTER * len(words) < after
