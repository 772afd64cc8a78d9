"""Where the engine itself would end with an error: every engine of the replay says so and reports it."""

from __future__ import annotations

import json

import pytest

from kvplan.replay.workloads.events import open_events

POOLS = ("--device", "cpu", "--kv-scale")
META = ("--device", "meta")
HEADER = "arrived_at,num_prefill_tokens,num_decode_tokens\n"
TREE = (
    "trace", "llama-3.1-8b", "--gpu", "h100", "--speculative", "eagle3-llama-3.1-8b",
    "--page-size", "1", "--context-length", "600", "--max-running-requests", "8",
    "--max-total-tokens", "16384",
)  # fmt: skip
MIXED = (
    "trace", "llama-3.1-8b", "--gpu", "h100", "--max-total-tokens", "600",
    "--max-running-requests", "16", "--context-length", "3000", "--chunked-prefill-size", "32",
    "--schedule-conservativeness", "0", "--disable-overlap-schedule", "--enable-mixed-chunk",
)  # fmt: skip


@pytest.fixture
def greedy(tmp_path):
    """A client that asks for more than the pool has, and a prompt that all but fills it."""
    file = tmp_path / "greedy.jsonl"
    with file.open("w") as lines:
        for rid, prompt, output, asked in (("r0", 2, 30, 5000), ("r1", 586, 0, 1)):
            row = {
                "request_parameters": json.dumps({"sampling_params": {"max_new_tokens": asked}}),
                "id": rid,
                "prompt_tokens": prompt,
                "completion_tokens": output,
                "request_received_ts": 1e9,
            }
            lines.write(json.dumps(row) + "\n")
    return file


@pytest.mark.parametrize("engine", [POOLS, META, ()], ids=["pools", "meta", "counts"])
@pytest.mark.parametrize("rows", ["0,593,300\n", "0,20,500\n0,593,300\n"])
def test_a_reserve_beyond_the_row_is_refused_before_it_is_written(kvplan, tmp_path, engine, rows):
    file = tmp_path / "w.csv"
    file.write_text(HEADER + rows)
    code, out, err = kvplan(*TREE, "--workload", file, *engine, "--json")
    report = json.loads(out)

    assert code == 1, err
    found = report["violation"]
    assert found["check"] == "no request exceeds its decode reserve or its row"
    assert found["request"] == str(rows.count("\n") + 1)
    assert "positions are asked for in a row of 6" in found["text"]
    assert [each["name"] for each in report["verification"] if each["state"] == "broken"] == [
        found["check"]
    ]
    assert not report["verdict"]["fits"]


@pytest.mark.parametrize("engine", [POOLS, META, ()], ids=["pools", "meta", "counts"])
def test_a_step_without_free_slots_is_reported(kvplan, tmp_path, greedy, engine):
    target = tmp_path / "report.json"
    code, out, err = kvplan(*MIXED, "--workload", greedy, *engine, "--json", "--output", target)
    report = json.loads(out)

    assert code == 1, err
    assert report["violation"]["check"] == "every step finds free slots"
    assert report["violation"]["text"] == "7 tokens are asked for and 0 are free"
    assert report["verdict"]["text"].startswith("broken: every step finds free slots: step ")
    assert target.read_text() == out


@pytest.mark.parametrize("launch", [MIXED, TREE], ids=["mixed", "tree"])
def test_its_operations_are_recorded_and_fail_again(kvplan, tmp_path, greedy, launch):
    file, workload = tmp_path / "run.jsonl", greedy
    if launch is TREE:
        workload = tmp_path / "w.csv"
        workload.write_text(HEADER + "0,20,500\n0,593,300\n")
    argv = (*launch, "--workload", workload, *POOLS, "--record", file, "--shrink", "--json")
    first = json.loads(kvplan(*argv)[1])["violation"]
    code, out, _ = kvplan(*launch, "--workload", file, *POOLS, "--json")

    assert code == 1
    again = json.loads(out)["violation"]
    assert (again["check"], again["request"]) == (first["check"], first["request"])
    assert len(list(open_events(file))) == first["shortest_failing_operations"] > 1


@pytest.mark.parametrize("command", ["check", "fit"])
def test_no_launch_serves_what_ends_the_engine(kvplan, tmp_path, command):
    file = tmp_path / "w.csv"
    file.write_text(HEADER + "0,593,300\n")
    budget = tmp_path / "b.yaml"
    budget.write_text(
        "model: llama-3.1-8b\ngpu: h100\nspeculative: eagle3-llama-3.1-8b\n"
        f"server: {{page_size: 1, context_length: 600}}\nworkload: {{file: {file}}}\n"
        "require: {no_retractions: true, max_occupancy: 0.9}\n"
    )
    if command == "check":
        code, out, err = kvplan("check", budget)
        assert out.count("the engine would stop at step ") == 2
    else:
        knob = ("--find", "max-running-requests", "--workload", file)
        code, out, err = kvplan("fit", *TREE[1:], *knob)
        assert "positions are asked for in a row" in " ".join(out.split())
    assert code == 1, err
