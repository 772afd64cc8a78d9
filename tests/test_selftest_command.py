"""`kvplan selftest FILE`: differences are shown, damage is refused by its line, never a traceback."""

from __future__ import annotations

import copy
import gzip
import json
import random
from typing import Any

import pytest

from kvplan import extras
from kvplan.selftest import SHIPPED, kind_of

BAD_VALUES: list[Any] = [
    None,
    -1,
    0,
    2**31,
    2**63,
    2**70,
    1.5,
    float("inf"),
    "x",
    "",
    [],
    {},
    [None],
    True,
]
NUM_MUTATIONS = 300


@pytest.fixture(scope="module")
def records():
    """One shipped record of each kind, and of each allocator."""
    found: dict[tuple[str, str | None], Any] = {}
    with gzip.open(SHIPPED, "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            found.setdefault((kind_of(record, "").name, record.get("allocator")), record)
    return found


@pytest.fixture
def compare(kvplan, tmp_path):
    """Run the command over some records: (exit code, stdout, stderr, file)."""

    def run(*lines, name="records.jsonl"):
        file = tmp_path / name
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        file.write_text("\n".join(texts))
        return *kvplan("selftest", file), str(file)

    return run


def test_every_kind_of_record_agrees(records, compare):
    kinds = {kind for kind, _ in records}

    assert kinds == {"sizing", "tensors", "allocator", "prefix tree", "schedule"}
    code, out, _, _ = compare(*records.values())
    assert code == 0
    assert out.startswith(f"{len(records)} of {len(records)} records agree\n")


def test_a_difference_is_shown_and_exits_1(records, compare):
    wrong = copy.deepcopy(records["allocator", "paged"])
    wrong["ops"][0]["out"] = [5]
    code, out, _, _ = compare(records["allocator", "token"], wrong)

    assert code == 1
    assert out.startswith("1 of 2 records agree\n")
    assert "records.jsonl:2" in out
    assert "op 0 (" in out
    assert "recorded [5]" in out


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "not a record of the engine's answers"),
        ('{"a": 1}', "not a record of the engine's answers"),
        ('{"allocator": "slots", "ops": []}', "not a whole allocator record: KeyError 'size'"),
        ('{"allocator": "slots", "size": -1, "ops": []}', "a pool of -1 state slots"),
        (
            '{"allocator": "slots", "size": 4, "ops": [{"op": "free", "index": ["a"]}]}',
            "not a whole allocator record: ValueError",
        ),
        (
            '{"allocator": "slots", "size": 4, "ops": [{"op": "free", "index": [1e400]}]}',
            "not a whole allocator record: RuntimeError",
        ),
        ('{"case": "x", "answer": {}}', "not a whole sizing record: AttributeError"),
        ('{"id": "nobody", "tensors": []}', "no sizing record has the id 'nobody'"),
        ('{"policy": "lru", "ops": [{"op": 3}]}', "not a whole prefix tree record"),
    ],
)
def test_a_damaged_record_is_refused_by_its_line(records, compare, line, problem):
    code, out, err, file = compare(records["allocator", "slots"], "", line)

    assert (code, out) == (2, "")
    assert err.startswith(f"error: {file}:3: {problem}"), err


@pytest.mark.parametrize("content", [b"\x1f\x8b\x08\x00", b"\x1f\x8bnot gzip", b"\xff\xfe\x00{"])
def test_a_file_that_is_no_record_file_is_refused(kvplan, tmp_path, content):
    file = tmp_path / "records.jsonl.gz"
    file.write_bytes(content)
    code, out, err = kvplan("selftest", file)

    assert (code, out) == (2, "")
    assert err.startswith(f"error: {file}")
    assert kvplan("selftest", tmp_path)[0] == kvplan("selftest", tmp_path / "none")[0] == 2


def test_an_empty_file_proves_nothing(compare):
    assert compare("")[0] == 1


def test_records_that_need_torch_say_how_to_get_it(records, compare, monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    code, out, err, file = compare(records["sizing", None], records["tensors", None])

    assert (code, out) == (2, "")
    assert err == (
        f"error: {file}:2: the tensors record needs torch, which is not installed\n"
        "  hint: pip install 'kvplan-pools[gpu]'\n"
    )


def places(value, path=()):
    """Paths of all values within a record, the first few of each list."""
    entries = value.items() if isinstance(value, dict) else enumerate(value[:5])
    for key, each in entries:
        yield (*path, key)
        if isinstance(each, dict | list):
            yield from places(each, (*path, key))


def mutated(record, rng):
    """A copy with one value gone or replaced."""
    record = copy.deepcopy(record)
    *path, key = rng.choice(list(places(record)))
    owner = record
    for step in path:
        owner = owner[step]
    if rng.random() < 0.2:
        del owner[key]
    else:
        owner[key] = rng.choice(BAD_VALUES)
    return record


def test_mutated_records_never_end_in_a_traceback(records, compare):
    rng = random.Random(1)
    pool = list(records.values())

    for _ in range(NUM_MUTATIONS):
        record = mutated(rng.choice(pool), rng)
        code, _, err, file = compare(record)
        assert code in (0, 1) or err.startswith(f"error: {file}"), json.dumps(record)[:500]
