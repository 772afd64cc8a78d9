"""Damaged states: refused with their line, or sound by a slow and obvious check; never a traceback."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from kvplan.errors import InputError
from kvplan.id_runs import ids
from kvplan.state.recorded import RecordedState, parse_state, state_text
from tests.conftest import REPOSITORY
from tests.fuzz.mutate import damaged_text, damaged_value
from tests.state.random_states import made_state

Run = Callable[..., tuple[int, str, str]]
STATES = sorted((REPOSITORY / "tests" / "data" / "states").glob("*.json"))
SECONDS = 2.0
ASKED = (
    (),
    ("--json",),
    ("--quiet",),
    ("--slot", "17"),
    ("--slot", "999999", "--json"),
    ("--request", "chat-7", "--position", "3"),
    ("--request", "request-0", "--position", "0", "--json"),
    ("--request", "doc-1", "--position", "5000"),
    ("--output", "map.svg", "--quiet"),
)


def nudged(value: Any, random: Random) -> Any:
    """One number of a JSON value moved a little, or far."""
    value = json.loads(json.dumps(value))
    spots = list(numbers(value))
    holder, key = random.choice(spots)
    holder[key] += random.choice([-16, -4, -1, 1, 4, 16, 1000])
    return value


def numbers(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every number inside, as its container and its key."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in pairs:
        if isinstance(inner, int) and not isinstance(inner, bool):
            yield value, key
        elif isinstance(inner, dict | list):
            yield from numbers(inner)


def faults(state: RecordedState) -> list[str]:
    """What cannot be in a state, slot by slot and page by page."""
    found = [*row_faults(state), *slot_faults(state), *state_slot_faults(state)]
    page, tokens = state.page_size, state.kv.tokens
    held = {*ids(state.cached)} | {slot for row in state.requests for slot in ids(row.slots)}
    found += page_faults(state.kv, page, held)
    if any(not page <= slot < tokens + page for slot in held):
        found.append("a slot is not there")
    peers = [peer for _, first, count in state.full_to_swa for peer in range(first, first + count)]
    mapped = [full for first, _, count in state.full_to_swa for full in range(first, first + count)]
    if state.sliding is None:
        return found + ["mapped to nothing"] * bool(mapped)
    found += page_faults(state.sliding, page, set(peers))
    if len(set(peers)) < len(peers) or len(set(mapped)) < len(mapped) or not set(mapped) <= held:
        found.append("two mappings, or one of nobody's")
    if any(not page <= peer < state.sliding.tokens + page for peer in peers):
        found.append("a sliding slot is not there")
    if any(full % page != peer % page for full, peer in zip(mapped, peers, strict=True)):
        found.append("another offset")
    return found


def page_faults(pool: Any, page_size: int, held: set[int]) -> list[str]:
    free = [*ids(pool.free_pages), *ids(pool.staged_pages)]
    pages = pool.tokens // page_size
    bad = (
        pool.tokens % page_size,
        len(set(free)) < len(free),
        any(not 1 <= each <= pages for each in free),
        {slot // page_size for slot in held} & set(free),
    )
    return ["pages"] * any(bad)


def row_faults(state: RecordedState) -> list[str]:
    rows, names = [each.row for each in state.requests], [each.rid for each in state.requests]
    lengths = [(len([*ids(each.slots)]), each) for each in state.requests]
    bad = (
        len(set(rows)) < len(rows),
        len(set(names)) < len(names),
        any(not 1 <= row < state.rows for row in rows),
        any(length > state.row_width for length, _ in lengths),
        any(not each.cached_len <= each.seq_len <= length for length, each in lengths),
    )
    return ["rows"] * any(bad)


def slot_faults(state: RecordedState) -> list[str]:
    cached = [*ids(state.cached)]
    owned: list[int] = []
    for each in state.requests:
        slots = [*ids(each.slots)]
        owned += slots[each.cached_len :]
        if not set(slots[: each.cached_len]) <= set(cached):
            return ["a prefix that is not cached"]
    everything = cached + owned
    return ["held twice"] * (len(set(everything)) < len(everything))


def state_slot_faults(state: RecordedState) -> list[str]:
    held = [each.state_slot for each in state.requests if each.state_slot is not None]
    held += [slot for each in state.requests for slot in each.tracking_slots]
    if state.state is None:
        return ["no state"] * bool(held)
    held += [*ids(state.state.free), *ids(state.state.cached)]
    outside = any(not 1 <= slot <= state.state.slots for slot in held)
    return ["state slots"] * (outside or len(set(held)) < len(held))


def test_a_state_is_refused_exactly_where_a_slow_check_finds_fault():
    random = Random(5)
    outcomes = {True: 0, False: 0}
    for seed in range(2_500):
        data = nudged(json.loads(state_text(made_state(seed).state)), random)
        try:
            state = msgspec.convert(data, RecordedState)
        except msgspec.ValidationError:
            sound = False
        else:
            sound = not faults(state)
        try:
            parse_state(json.dumps(data), "state.json")
            accepted, where = True, ""
        except InputError as error:
            accepted, where = False, str(error.where)
        assert accepted == sound, (seed, data)
        assert accepted or where.startswith("state.json:1:")
        outcomes[sound] += 1

    assert min(outcomes.values()) > 250


@pytest.mark.parametrize("seed", range(3))
def test_damaged_states_are_refused_or_shown(
    kvplan: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
):
    monkeypatch.chdir(tmp_path)
    random = Random(seed)
    texts = [file.read_text() for file in STATES]
    texts += [state_text(made_state(each).state) for each in range(6)]
    codes = set()
    for _ in range(700):
        text = random.choice(texts)
        match random.randrange(3):
            case 0:
                text = damaged_text(text, random)
            case 1:
                text = json.dumps(damaged_value(json.loads(text), random))
            case 2:
                text = json.dumps(nudged(json.loads(text), random))
        Path("state.json").write_bytes(text.encode("utf-8", "surrogatepass"))
        argv = ["inspect", "--state", "state.json", *random.choice(ASKED)]
        start = time.process_time()
        code, out, err = kvplan(*argv)

        assert code in (0, 1, 2), (argv, code, err)
        assert out if code < 2 else err.startswith("error: "), (argv, code, out, err)
        assert time.process_time() - start < SECONDS, argv
        codes.add(code)
    assert {0, 2} <= codes
