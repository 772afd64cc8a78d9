"""`kvplan fit` on the command line: answers, reasons, JSON, refusals."""

from __future__ import annotations

import json
import random

import pytest

DENSE = ("fit", "llama-3.1-8b", "--gpu", "h100")
KNOBS = (
    "mem-fraction-static", "context-length", "max-running-requests", "tp", "gpus", "page-size",
    "kv-cache-dtype", "swa-ratio", "mamba-ratio", "hicache-size",
)  # fmt: skip


def test_the_answer_comes_first_and_its_neighbours_after(kvplan):
    code, out, err = kvplan(*DENSE, "--find", "mem-fraction-static", "--tokens", "500000")

    assert (code, err) == (0, "")
    assert out.startswith("--mem-fraction-static 0.962 is the smallest that gives 500,000 tokens\n")
    assert "* 0.962" in out
    assert "0.961" in out
    assert "as it is" in out


def test_the_answer_is_what_size_prints(kvplan):
    report = json.loads(kvplan(*DENSE, "--find", "tp", "--requests", "20", "--json")[1])
    knob = report["knobs"][0]
    sized = kvplan("size", "llama-3.1-8b", "--gpu", "h100", *knob["flags"].split(), "--json")[1]

    assert knob["proof"]["tokens"] == json.loads(sized)["pool"]["max_total_num_tokens"]
    assert knob["proof"]["requests"] >= 20


def test_every_knob_alone_is_a_line_each(kvplan):
    code, out, _ = kvplan(*DENSE, "--requests", "8")

    assert code == 0
    assert out.startswith("3 of 7 knobs alone give 8 requests of full context")
    assert "* --context-length 52272" in out
    assert "no --page-size: at best 1: 3 of 8 requests (tokens)" in out
    assert "--swa-full-tokens-ratio: 'llama-3.1-8b' has no sliding pool" in out


def test_none_says_why(kvplan):
    code, out, _ = kvplan(
        "fit", "llama-3.1-70b", "--gpu", "h100", "--find", "mem-fraction-static", "--tokens", "1"
    )

    assert code == 1
    assert out.startswith("no --mem-fraction-static gives 1 token: no value starts; at 0.999:")


def test_a_knob_without_a_say_is_no_answer(kvplan):
    code, out, _ = kvplan(*DENSE, "--find", "mamba-ratio", "--tokens", "1", "--quiet")

    assert (code, out) == (1, "none of the knobs has a say in this launch\n")


def test_json_is_stable_and_written_to_a_file(kvplan, tmp_path):
    target = tmp_path / "fit.json"
    argv = (*DENSE, "--find", "context-length", "--requests", "5", "--json")
    code, out, _ = kvplan(*argv, "--output", target)
    report = json.loads(out)

    assert code == 0
    assert target.read_text() == out == kvplan(*argv)[1]
    assert report["schema"] == "kvplan.fit/1"
    assert report["verdict"]["found"]
    assert [trial["holds"] for trial in report["knobs"][0]["neighbours"]] == [True, True, False]
    assert report["now"]["misses"] == "3 of 5 requests (tokens)"


def test_a_shipped_workload_or_a_file_is_served(kvplan, tmp_path):
    trace = tmp_path / "trace.csv"
    rows = "".join(f"{second},{200 + second},50\n" for second in range(40))
    trace.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n" + rows)
    argv = (*DENSE, "--find", "page-size", "--workload", trace)
    code, out, _ = kvplan(*argv, "--limit", "10", "--quiet")

    assert code == 0
    assert out.startswith("--page-size 256 is the largest, coming from the roomy side, that gives")


def test_what_serves_a_workload_is_found_with_the_launchs_own_scheduler(kvplan):
    launch = (
        *("llama-3.1-8b", "--gpu", "h100", "--max-total-tokens", "60000"),
        *("--schedule-conservativeness", "0.05", "--workload", "chat", "--limit", "300"),
    )
    code, out, _ = kvplan("fit", *launch, "--find", "max-running-requests", "--json")
    found = json.loads(out)["knobs"][0]["value"]

    assert code == 0
    assert kvplan("trace", *launch, "--max-running-requests", found, "-q")[0] == 0
    assert kvplan("trace", *launch, "--max-running-requests", found + 1, "-q")[0] == 1


def test_what_a_workload_does_not_say_is_supplied_and_told(kvplan, tmp_path):
    file = tmp_path / "batch.jsonl"
    row = {"request_id": 0, "type": "text", "input_length": 40, "hash_ids": [1, 2, 3]}
    file.write_text("".join(json.dumps(row | {"request_id": n}) + "\n" for n in range(9)))
    argv = (*DENSE, "--find", "page-size", "--workload", file)
    assert "--request-rate R" in kvplan(*argv)[2]
    code, out, _ = kvplan(
        *argv, "--request-rate", "4", "--output-len", "20", "--max-new", "context", "--json"
    )
    notes = json.loads(out)["assumed"]

    assert code == 0
    assert "requests arrive at 4 a second, drawn with seed 0 (--request-rate)" in notes
    assert "clients ask for as much as the context holds (--max-new)" in notes


def test_what_a_replay_leaves_out_of_the_schedule_is_said(kvplan):
    launch = (
        "llama-3.1-8b",
        "--gpu",
        "h100",
        "--find",
        "page-size",
        "--enable-priority-scheduling",
    )
    words = "'enable_priority_scheduling' changes the schedule"

    assert words in kvplan("fit", *launch, "--workload", "chat", "--limit", "5")[1]
    assert words not in kvplan("fit", *launch, "--tokens", "5")[1]


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        ((), "no target is named"),
        (("--tokens", "1", "--find", "mem-fraction"), "did you mean 'mem-fraction-static'?"),
        (("--tokens", "1", "--smallest", "--largest"), "exclude each other"),
        (("--tokens", "0"), "0 is not in the range"),
        (("--workload", "no-such-workload"), "no-such-workload"),
        (("--tokens", "1", "--output", "fit.txt"), "no form is written for 'fit.txt'"),
        (("--tokens", "1", "--headroom-gib", "x"), "is not a valid float"),
        (("--headroom-gib", "nan"), "--headroom-gib nan is no memory size"),
        (("--headroom-gib", "inf"), "--headroom-gib inf is no memory size"),
        (("--headroom-gib", "-1"), "--headroom-gib -1 is no memory size"),
        (("--tokens", "1", "--page-sise", "16"), "did you mean '--page-size'?"),
    ],
)
def test_bad_input_is_refused(kvplan, argv, problem):
    code, _, err = kvplan(*DENSE, *argv)

    assert code == 2
    assert problem in err


def test_odd_questions_end_in_an_answer_or_a_refusal(kvplan):
    chance = random.Random(5)
    models = ("llama-3.1-8b", "gpt-oss-20b", "granite-4.0-h-micro", "deepseek-v3", "qwen3-0.6b")
    numbers = ("1", "7", "4096", "1000000", "999999999999", "-3", "x", "1e9")
    for _ in range(150):
        argv = ["fit", chance.choice(models), "--gpu", chance.choice(("t4", "h100", "mi300x"))]
        argv += ["--find", chance.choice(KNOBS)]
        for flag in chance.sample(
            ("--tokens", "--requests", "--context", "--host-tokens", "--headroom-gib"), 2
        ):
            argv += [flag, chance.choice(numbers)]
        argv += chance.choice(([], ["--smallest"], ["--largest"], ["--tp-size", "2"]))
        code, out, err = kvplan(*argv, "--quiet")

        assert code in (0, 1, 2), (argv, err)
        assert "Traceback" not in err
        assert out if code < 2 else err
