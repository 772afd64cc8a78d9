"""What a replay leaves behind: operations that play again, and the pools at their fullest."""

from __future__ import annotations

import errno
import json

import pytest

from kvplan.id_runs import ids
from kvplan.replay.workloads.events import open_events
from kvplan.state.recorded import load_state

SIZES = ("--max-running-requests", "16", "--context-length", "8192", "--max-total-tokens", "16384")
POOLS = ("--device", "cpu", "--kv-scale")
FAMILIES = {
    "pages": ("llama-3.1-8b", "h100", "--page-size", "16"),
    "single tokens": ("llama-3.1-8b", "h100"),
    "no cache": ("llama-3.1-8b", "h100", "--disable-radix-cache", "--page-size", "4"),
    "sliding": ("gpt-oss-20b", "h100", "--page-size", "16"),
    "recurrent": ("qwen3-next-80b-a3b", "h200", "--tp", "2", "--max-mamba-cache-size", "96"),
    "drafts": (
        "llama-3.1-8b", "h100", "--speculative", "eagle3", "--draft",
        "draft-eagle3-llama3.1-instruct-8b", "--page-size", "16",
    ),
}  # fmt: skip


def launch(family):
    model, gpu, *flags = FAMILIES[family]
    return ("trace", model, "--gpu", gpu, *flags, *SIZES, *POOLS)


@pytest.mark.parametrize("family", FAMILIES)
def test_recorded_operations_play_again_and_hold(kvplan, tmp_path, family):
    file = tmp_path / "run.jsonl"
    code, out, err = kvplan(
        *launch(family), "--workload", "chat", "--limit", "60", "--record", file, "--json"
    )
    assert code in (0, 1), err
    replayed = json.loads(out)["pools"]
    recorded = list(open_events(file))
    assert len(recorded) > 500
    steps = [each.step or 0 for each in recorded]
    assert steps == sorted(steps)

    code, out, err = kvplan(
        *launch(family), "--workload", file, "--verify-every", "100", "--stamp", "--json"
    )
    assert code == 0, out + err
    report = json.loads(out)
    assert report["violation"] is None
    assert report["steps"]["total"] == len(recorded)
    assert [sizes(pool) for pool in report["pools"]] == [sizes(pool) for pool in replayed]
    for pool, before in zip(report["pools"], replayed, strict=True):
        # played operations count what the cache keeps, too
        assert before["peak"] <= pool["peak"] <= pool["capacity"]
        assert 0 <= pool["p50"] <= pool["p95"] <= pool["p99"] <= pool["peak"]


def sizes(pool):
    return pool["name"], pool["unit"], pool["capacity"]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_recorded_state_is_that_of_the_peak(kvplan, tmp_path, family):
    file = tmp_path / "peak.json"
    code, out, err = kvplan(
        *launch(family), "--workload", "chat", "--limit", "60", "--record", file, "--json"
    )
    assert code in (0, 1), err
    report, state = json.loads(out), load_state(file).state

    # a jump tells the last of the steps that the peak lasts
    assert report["pools"][0]["peak_step"] <= state.step < report["steps"]["total"]
    free = sum(count for _, count in (*state.kv.free_pages, *state.kv.staged_pages))
    held = 16384 - free * state.page_size
    assert report["pools"][0]["peak"] <= held
    assert sum(count for _, count in state.cached) <= held
    rows = [request.row for request in state.requests]
    assert len(set(rows)) == len(rows) > 0
    assert all(len(list(ids(each.slots))) >= each.seq_len for each in state.requests)
    assert kvplan("inspect", "--state", file, "--json")[0] == 0


@pytest.mark.parametrize("name", ["run.jsonl", "peak.json"])
def test_a_record_that_cannot_be_written_is_named(kvplan, monkeypatch, tmp_path, name):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    argv = ("--workload", "chat", "--limit", "5", "--record", tmp_path / name)
    code, out, err = kvplan(*launch("pages"), *argv)

    assert (code, out) == (2, "")
    assert err == f"error: {tmp_path / name}: cannot write: no space left on device\n"
    assert not list(tmp_path.iterdir())


def test_the_header_of_a_record_names_its_pools(kvplan, tmp_path):
    file = tmp_path / "run.jsonl"
    kvplan(*launch("pages"), "--workload", "chat", "--limit", "5", "--record", file, "-q")

    assert sorted(tmp_path.iterdir()) == [file]
    assert open_events(file).header == {
        "kvplan": "events",
        "version": 1,
        "model": "llama-3.1-8b",
        "page_size": 16,
        "tokens": 16384,
        "rows": 16,
    }


def write(path, *operations, **header):
    lines = [{"kvplan": "events", "version": 1, **header}, *operations]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


ALLOC = {"op": "alloc", "requests": ["a"]}
EXTEND = {"op": "extend", "requests": ["a"], "prefix_lens": [0], "seq_lens": [40]}


def test_operations_that_somebody_wrote_are_played(kvplan, tmp_path):
    file = write(
        tmp_path / "own.jsonl",
        ALLOC,
        EXTEND,
        {"op": "decode", "requests": ["a"]},
        {"op": "leave", "requests": ["a"]},
        {"op": "alloc", "requests": ["b"], "prefixes": [[["a", 0, 32]]]},
        {"op": "extend", "requests": ["b"], "prefix_lens": [32], "seq_lens": [60]},
        {"op": "free", "requests": ["b"]},
        {"op": "evict", "num_tokens": 10},
        ALLOC | {"requests": ["c"]},
        EXTEND | {"requests": ["c"]},
        {"op": "free", "requests": ["c"]},
        ALLOC | {"requests": ["c"]},
        page_size=16,
    )
    code, out, err = kvplan(*launch("pages"), "--workload", file, "--json")
    assert code == 0, out + err
    report = json.loads(out)

    assert report["pools"][0]["peak"] == 48 + 32
    assert report["pools"][1]["peak"] == 1


PAIR = {"op": "alloc", "requests": ["a", "b"]}
LONG = {"op": "extend", "requests": ["a", "b"], "prefix_lens": [0, 0], "seq_lens": [8192, 8192]}


@pytest.mark.parametrize(
    ("operations", "problem"),
    [
        ([PAIR, LONG | {"seq_lens": [8192, 8193]}], "2: 16400 tokens are asked for and 16384 are"),
        (
            [PAIR, LONG, {"op": "decode", "requests": ["a", "b"]}],
            "3: 32 tokens are asked for and 0 are free",
        ),
        ([{"op": "alloc", "requests": [f"r{n}" for n in range(99)]}], "1: no row is left for"),
    ],
)
def test_operations_that_ask_for_more_than_there_is_say_so(kvplan, tmp_path, operations, problem):
    file = write(tmp_path / "own.jsonl", *operations)
    code, out, _ = kvplan(*launch("pages"), "--workload", file, "--json")
    report = json.loads(out)

    assert code == 1
    assert report["violation"]["check"] == "every step finds free slots"
    assert f"operation {problem}" in report["verdict"]["text"]


RESERVE = {"op": "reserve", "requests": ["a"], "seq_lens": [9000]}
FOLLOW = {"op": "follow", "request": "a", "start": 8190, "spans": [["a", 0, 16]]}


@pytest.mark.parametrize(
    ("family", "operations"),
    [
        ("pages", [ALLOC, EXTEND | {"seq_lens": [9000]}]),
        ("pages", [ALLOC, EXTEND, FOLLOW]),
        (
            "pages",
            [ALLOC, EXTEND | {"seq_lens": [8192]}, *[{"op": "decode", "requests": ["a"]}] * 9],
        ),
        ("drafts", [ALLOC, EXTEND, RESERVE]),
    ],
)
def test_no_operation_writes_beyond_its_row(kvplan, tmp_path, family, operations):
    file = write(tmp_path / "own.jsonl", *operations)
    code, out, err = kvplan(*launch(family), "--workload", file, "--json")
    report = json.loads(out)

    assert code == 1, err
    assert report["violation"]["check"] == "no request exceeds its decode reserve or its row"
    assert report["violation"]["request"] == "a"
    assert "positions are asked for in a row of" in report["verdict"]["text"]


@pytest.mark.parametrize(
    ("operations", "header", "problem"),
    [
        ([ALLOC], {"page_size": 4}, "recorded with page size 4, the launch has 16"),
        ([ALLOC], {"tokens": 99}, "--max-total-tokens 99"),
        ([ALLOC, EXTEND | {"prefix_lens": [8]}], {}, "operation 2: request 'a' starts behind 8"),
        (
            [ALLOC, EXTEND, {"op": "release", "spans": [["a", 64, 80]]}],
            {},
            "own.jsonl:4: request 'a' has no tokens 64 to 80",
        ),
        (
            [ALLOC, EXTEND, {"op": "release", "spans": [["a", 16, 80]]}],
            {},
            "operation 3: request 'a' has no slots from position 48 on",
        ),
        ([{"op": "take_state", "state": 1}], {}, "the launch has no recurrent states"),
        (
            [ALLOC, EXTEND, {"op": "release", "spans": [["a", 0, 16]], "side": "sliding"}],
            {},
            "the launch has no sliding pool",
        ),
    ],
)
def test_operations_of_other_pools_are_refused(kvplan, tmp_path, operations, header, problem):
    file = write(tmp_path / "own.jsonl", *operations, **header)
    code, out, err = kvplan(*launch("pages"), "--workload", file)

    assert code == 2
    assert out == ""
    assert problem in err
    assert str(file) in err


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--limit", "1"], "--limit has no meaning for operations"),
        (["--skip-bad-rows"], "--skip-bad-rows has no meaning for operations"),
        (["--block-size", "16"], "--block-size has no meaning for operations"),
        (["--record", "x.json"], "operations have no peak to record in 'x.json'"),
    ],
)
def test_flags_without_a_meaning_for_operations_are_refused(kvplan, tmp_path, flags, problem):
    file = write(tmp_path / "own.jsonl", ALLOC, EXTEND)
    code, out, err = kvplan(*launch("pages"), "--workload", file, *flags)

    assert (code, out) == (2, "")
    assert problem in err


def test_operations_need_pools(kvplan, tmp_path):
    file = write(tmp_path / "own.jsonl", ALLOC, EXTEND)
    code, _, err = kvplan(
        "trace", "llama-3.1-8b", "--gpu", "h100", "--workload", file, "--engine", "accounting"
    )

    assert code == 2
    assert "operations need slots, and counts have none\n  hint: use --engine pools" in err


def test_played_operations_are_reported_as_such(kvplan, tmp_path):
    file = write(tmp_path / "own.jsonl", ALLOC, EXTEND, page_size=16)
    copy = tmp_path / "copy.jsonl"
    code, out, err = kvplan(*launch("pages"), "--workload", file, "--record", copy)

    assert code == 0, err
    assert " · 2 operations · pools engine on cpu" in out
    assert f"workload    {file}: events (kvplan operations): JSON lines" in out
    assert not any(f"\n  {word} " in out for word in ("requests", "queue", "prefix", "steps"))
    assert "clients ask" not in out
    assert list(open_events(copy)) == list(open_events(file))
    assert open_events(copy).header == open_events(file).header


def test_what_operations_do_not_have_is_null_and_no_condition(kvplan, tmp_path):
    file = write(tmp_path / "own.jsonl", ALLOC, EXTEND, page_size=16)
    _, out, _ = kvplan(*launch("pages"), "--workload", file, "--json")
    found = json.loads(out)

    parts = ("workload", "requests", "queue", "prefix", "pages")
    assert [found[part] for part in parts] == [None] * len(parts)
    assert found["steps"] == {
        "total": 2, "prefill": None, "decode": None, "end_s": None
    }  # fmt: skip
    code, _, err = kvplan(*launch("pages"), "--workload", file, "--fail-on", "wait_p99>2s")
    assert code == 2
    assert "'wait_p99>2' has no meaning for operations" in err


def test_a_header_alone_is_no_trace_of_operations(kvplan, tmp_path):
    file = write(tmp_path / "own.jsonl", page_size=16)
    code, _, err = kvplan(*launch("pages"), "--workload", file)

    assert code == 2
    assert err.startswith(f"error: {file}: no operation is below the header")


def test_shrinking_what_did_not_fail_says_so(kvplan, tmp_path):
    file = write(tmp_path / "own.jsonl", ALLOC, EXTEND, page_size=16)
    code, out, err = kvplan(*launch("pages"), "--workload", file, "--shrink")

    assert code == 0, err
    assert "  warning: nothing failed: there was nothing to shrink\n" in out


def test_how_far_operations_were_shrunk_is_said(kvplan, tmp_path):
    decode = {"op": "decode", "requests": ["a", "b"]}
    file = write(tmp_path / "own.jsonl", PAIR, LONG, decode, decode)
    code, out, err = kvplan(*launch("pages"), "--workload", file, "--shrink")

    assert code == 1, err
    assert "  shrunk      to the first 3 operations\n" in out


def test_played_operations_are_no_proof_that_a_workload_fits(kvplan, tmp_path):
    file, table = tmp_path / "own.jsonl", tmp_path / "r.csv"
    write(file, ALLOC, EXTEND, page_size=16)
    code, out, err = kvplan(*launch("pages"), "--workload", file, "-q", "--output", table)

    assert code == 0
    assert out == "2 operations played, nothing broken; peak 0% of 16,384 tokens\n"
    assert err == f"'{table}' has a header alone: operations have no times\n"
