"""The picture of a state: well-formed, the same every time, a square for every cell."""

from __future__ import annotations

from collections import Counter
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from kvplan.report.occupancy import PageClass, pool_maps
from kvplan.report.state import Recorded, load_state, parse_state, state_text
from kvplan.report.svg import CELL, COLORS, COLUMNS, GAP, LABELS, MARGIN, MOST_ROWS, occupancy_svg
from tests.conftest import REPOSITORY
from tests.report.random_states import made_state

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
