"""Recorded states: written and read back, refused where they contradict themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvplan.errors import InputError
from kvplan.id_runs import ids, mapped_runs, runs
from kvplan.planner import PlanInputs, plan, read_inputs
from kvplan.state.checks import NOBODY
from kvplan.state.ownership import CACHED, OWNED, SHARED, holders
from kvplan.state.recorded import (
    MAX_BYTES,
    HeldRow,
    PagedPool,
    RecordedState,
    load_state,
    parse_state,
    read_launch,
    recorded_launch,
    state_text,
)
from tests.conftest import REPOSITORY

STATES = REPOSITORY / "tests" / "data" / "states"
Change = Callable[[dict[str, Any]], object]


def small() -> dict[str, Any]:
    """Eight pages of four slots on either side; two requests that share a cached page."""
    return {
        "schema": "kvplan.state/1",
        "page_size": 4,
        "rows": 5,
        "row_width": 20,
        "kv": {"tokens": 32, "free_pages": [[5, 3]], "staged_pages": [[4, 1]]},
        "sliding": {"tokens": 16, "free_pages": [[4, 1]]},
        "full_to_swa": [[4, 8, 4], [8, 4, 3], [12, 12, 2]],
        "cached": [[4, 4], [32, 4]],
        "requests": [
            {"rid": "a", "row": 2, "seq_len": 7, "cached_len": 4, "slots": [[4, 4], [8, 3]]},
            {"rid": "b", "row": 1, "seq_len": 5, "cached_len": 4, "slots": [[4, 4], [12, 2]]},
        ],
        "state": {"slots": 4, "free": [[4, 1]], "cached": [[1, 1]]},
    }


def parse(data: Any) -> Any:
    return parse_state(json.dumps(data, indent=1), "state.json")


def test_a_state_reads_back_as_it_was_written():
    launch = read_inputs(PlanInputs(model="qwen3-8b", gpu="h100", parallel="tp2"))
    state = RecordedState(
        step=7,
        launch=recorded_launch(launch),
        page_size=16,
        rows=9,
        row_width=128,
        kv=PagedPool(tokens=160, free_pages=runs([5, 6, 7, 2]), staged_pages=runs([1])),
        cached=runs(range(48, 80)),
        requests=(HeldRow(rid="one", row=3, seq_len=5, slots=runs(range(128, 134))),),
    )

    text = state_text(state)
    recorded = parse_state(text, "state.json")

    assert recorded.state == state
    assert state_text(recorded.state) == text
    assert plan(read_launch(recorded)) == plan(launch)


@pytest.mark.parametrize("file", sorted(STATES.glob("*.json")), ids=lambda file: file.stem)
def test_states_of_our_own_are_their_own_text(file: Path):
    recorded = load_state(file)

    assert state_text(recorded.state) == file.read_text()
    assert plan(read_launch(recorded)).starts


def test_runs_keep_the_order_of_ids():
    listed = [7, 8, 9, 3, 2, 1, 4, 5]

    assert runs(listed) == ((7, 3), (3, 1), (2, 1), (1, 1), (4, 2))
    assert list(ids(runs(listed))) == listed
    assert mapped_runs([(4, 8), (5, 9), (6, 4), (8, 5)]) == ((4, 8, 2), (6, 4, 1), (8, 5, 1))


def test_every_slot_is_marked_by_who_holds_it():
    owners = parse(small()).owners

    assert [owners.kv[slot] for slot in (0, 4, 8, 11, 12, 13, 16, 32)] == [
        NOBODY, SHARED, OWNED, NOBODY, OWNED, OWNED, NOBODY, CACHED
    ]  # fmt: skip
    assert owners.sliding[8] == SHARED
    assert owners.sliding[4:8] == bytes([OWNED] * 3 + [NOBODY])
    assert owners.state == bytes([NOBODY, CACHED, NOBODY, NOBODY, NOBODY])


def test_a_shared_slot_has_several_holders():
    found = list(holders(parse(small()).state, 6))

    assert [(each.request.rid, each.position) for each in found] == [("a", 2), ("b", 2)]


def put(*path: str | int, value: Any) -> Change:
    """Replace the value at path."""

    def change(data: dict[str, Any]) -> None:
        inner: Any = data
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = value

    return change


REFUSALS: dict[str, tuple[Change, str]] = {
    "another version": (put("schema", value="kvplan.state/9"), r":2:.*'kvplan\.state/9', a recorded"),
    "another kind": (put("schema", value="kvplan.size/1"), r"the schema is 'kvplan\.size/1'"),
    "no schema": (lambda data: data.pop("schema"), "no recorded state: it has no 'schema'"),
    "an unknown field": (put("requests", 0, "slot", value=1), "unknown field 'slot'"),
    "a missing field": (lambda data: data.pop("kv"), "missing field 'kv'"),
    "a number for a list": (put("cached", value=4), "'cached' must be a list, got 4"),
    "a run of three": (put("cached", 0, value=[4, 1, 1]), "of length 2"),
    "true for a row": (put("requests", 0, "row", value=True), "'row' must be an integer, got true"),
    "a negative slot": (
        put("requests", 1, "slots", 1, value=[-4, 4]),
        r"'requests\[1\]\.slots\[1\]\[0\]' must be an integer >= 0, got -4",
    ),
    "an empty run": (put("requests", 0, "slots", value=[[4, 0]]), "must be an integer >= 1"),
    "a number too large": (put("kv", "tokens", value=10**12), "'tokens' must be an integer <="),
    "half a page": (put("kv", "tokens", value=30), "30 tokens are not whole pages of 4"),
    "a mapping without a pool": (lambda data: data.pop("sliding"), "there is no sliding pool"),
    "a row twice": (put("requests", 1, "row", value=2), "row 2 belongs to 'a' and to 'b'"),
    "a row out of range": (put("requests", 1, "row", value=5), "row 5 of 'b' is out of range"),
    "a name twice": (put("requests", 1, "rid", value="a"), "request 'a' comes twice"),
    "more tokens than slots": (put("requests", 0, "seq_len", value=9), "has 9 tokens and 7 slots"),
    "more cached than tokens": (put("requests", 0, "cached_len", value=8), "7 tokens, 8 of them"),
    "a row too narrow": (put("row_width", value=6), "'a' has 7 slots in a row of 6"),
    "a padding slot": (put("requests", 0, "slots", 1, value=[3, 3]), "slot 3 of 'a' takes padding"),
    "a slot out of range": (put("requests", 0, "slots", 1, value=[34, 3]), "slot 36 of 'a' is out of range"),
    "a slot of two requests": (
        put("requests", 1, "slots", 1, value=[10, 2]),
        "slot 10 is held twice: 'a' at position 6, 'b' at position 4",
    ),
    "a slot of one request twice": (
        put("requests", 0, "slots", 1, value=[5, 3]),
        "slot 5 is held twice: the prefix cache, 'a' at position 1, 'a' at position 4",
    ),
    "a slot twice in the cache": (
        put("cached", value=[[4, 4], [7, 1]]),
        "slot 7 is held twice: the prefix cache, 'a' at position 3",
    ),
    "a cached slot out of range": (put("cached", value=[[36, 1]]), "slot 36 of the cache is out"),
    "a schema that is no name": (put("schema", value=7), "the schema is 7, a recorded"),
    "a prefix that is not cached": (
        put("requests", 0, "cached_len", value=6),
        "slot 8 of the cached prefix of 'a' is not in the cache",
    ),
    "a free page that is held": (
        put("kv", "free_pages", value=[[2, 1]]),
        "page 2 is free and slot 8 of it is held",
    ),
    "a page free twice": (put("kv", "staged_pages", value=[[6, 1]]), "page 6 stands twice"),
    "a free padding page": (put("kv", "free_pages", value=[[0, 1]]), "page 0 is out of range"),
    "a page twice in one list": (put("kv", "free_pages", value=[[5, 3], [7, 1]]), "page 7 stands twice"),
    "a page that is not there": (put("kv", "free_pages", value=[[5, 5]]), "page 9 is out of range"),
    "a mapping of nobody's": (
        put("full_to_swa", value=[[20, 8, 1]]),
        "slot 20 has a sliding slot and nobody holds it",
    ),
    "two mappings of one slot": (
        put("full_to_swa", value=[[4, 8, 4], [5, 5, 1]]), "slot 5 is mapped twice"
    ),
    "two mappings to one slot": (
        put("full_to_swa", value=[[4, 8, 4], [8, 8, 1]]), "two slots map to sliding slot 8"
    ),
    "another offset": (put("full_to_swa", value=[[4, 9, 2]]), "at another offset of its page"),
    "a sliding slot too far": (put("full_to_swa", value=[[4, 20, 1]]), "slot 20 is out of range"),
    "a state slot of two": (
        put("requests", 0, "tracking_slots", value=[4]),
        "state slot 4 of 'a' is held twice, or held and free",
    ),
    "a state slot too far": (put("requests", 0, "state_slot", value=5), "state slot 5 of 'a' is out of"),
    "state slots of a plain model": (
        lambda data: (data.pop("state"), put("requests", 0, "state_slot", value=1)(data)),
        "'a' has state slots and the state has none",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_a_state_that_contradicts_itself_is_refused_with_its_line(name: str):
    change, message = REFUSALS[name]
    data = small()
    change(data)

    with pytest.raises(InputError, match=message) as refusal:
        parse(data)
    assert refusal.value.where is not None
    assert refusal.value.where.startswith("state.json:")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"\x7fELF\0\0\1", "not a text file"),
        (b"\xff\xfe{}", "not UTF-8 text"),
        (b"[]", "no recorded state"),
        (b'{"schema": "kvplan.state/1", "schema": "kvplan.state/1"}', "given twice"),
        (json.dumps(small()).encode()[:-40], "not JSON"),
        (b" " * (MAX_BYTES + 1), "larger than 32 MiB"),
    ],
    ids=["empty", "binary", "utf-16", "a list", "a key twice", "truncated", "huge"],
)
def test_what_is_no_state_is_refused(content: bytes, message: str, tmp_path: Path):
    file = tmp_path / "state.json"
    file.write_bytes(content)

    with pytest.raises(InputError, match=message) as refusal:
        load_state(file)
    assert str(refusal.value.where).startswith(str(file))


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        (("kv",), "add 'kv: <mapping>'"),
        (("kv", "free_pages"), "add 'free_pages: <list>'"),
        (("rows",), "add 'rows: <int>'"),
        (("requests", 1, "rid"), "add 'rid: <str>'"),
    ],
)
def test_a_missing_field_says_what_to_add(path: tuple[str | int, ...], hint: str):
    data = small()
    inner: Any = data
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]

    with pytest.raises(InputError, match=f"missing field '{path[-1]}'") as refusal:
        parse(data)
    assert refusal.value.hint == hint


def test_a_state_without_a_launch_says_what_to_name():
    with pytest.raises(InputError, match="names no launch") as refusal:
        read_launch(parse(small()))
    assert refusal.value.hint == "name MODEL and --gpu beside --state"


@pytest.mark.parametrize("field", ["row", "seq_len", "cached_len", "slots", "state_slot"])
def test_a_refusal_names_the_request_without_what_a_terminal_would_obey(field: str):
    data = small()
    put("requests", 0, "rid", value="a\x1b[31m\nerror: b")(data)
    put("requests", 0, field, value=[[36, 1]] if field == "slots" else 30)(data)

    with pytest.raises(InputError) as refusal:
        parse(data)
    assert r"'a\x1b[31m\nerror: b'" in refusal.value.problem
