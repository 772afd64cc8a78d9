"""`kvplan log` on the command line: where the launch comes from, what is printed, how it exits."""

from __future__ import annotations

import json
import random
import time

import pytest

from tests.conftest import REPOSITORY
from tests.guard.samples import TWO_RANKS
from tests.guard.test_fuzz import mutated

EXAMPLE = REPOSITORY / "docs" / "examples" / "server.log"
LAUNCH = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 2 --mem-fraction-static "
FAILED = """\
Load weight begin. avail mem=78.90 GB
Load weight end. type=Qwen2ForCausalLM, dtype=torch.bfloat16, avail mem=17.70 GB, mem usage=61.20 GB.
ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.7. Raise --mem-fraction-static above 0.776 (minimum viable = 1 - available/pre = 0.7757).
"""
SECONDS = 1.0
FUZZED = 3200


def test_a_log_that_prints_its_arguments_needs_nothing_else(kvplan):
    code, out, err = kvplan("log", EXAMPLE)

    assert (code, err) == (0, "")
    assert out.startswith("agrees: 7 figures, within the digits that the log prints")
    assert "2 ranks · qwen3-8b · H100 80GB · fraction 0.85" in out
    assert "small allocations came between two readings" in out
    assert "graph_gib 1.02" in out


def test_a_launch_line_is_what_the_log_is_held_against(kvplan):
    launch = f"{LAUNCH}0.85 --kv-cache-dtype fp8_e4m3"
    code, out, _ = kvplan("log", EXAMPLE, "--launch", launch, "--gpu", "h100")

    assert code == 1
    assert out.startswith("differs: 3 of 7 figures")
    assert "max_total_num_tokens, K size, V size, free after the pools: the log's cache" in out


def test_a_launch_file_and_flags_win_over_the_printed_arguments(kvplan, tmp_path):
    script = tmp_path / "run.sh"
    script.write_text(f"{LAUNCH}0.85\n")

    assert kvplan("log", EXAMPLE, "--launch-file", script, "--gpu", "h100")[0] == 0
    assert kvplan("log", EXAMPLE, "qwen3-8b", "--mem-fraction-static", "0.8")[0] == 1
    assert kvplan("log", EXAMPLE, "--set", "mem_fraction_static=0.8")[0] == 1


def test_json_holds_every_figure_and_every_comparison(kvplan, tmp_path):
    target = tmp_path / "log.json"
    code, out, _ = kvplan("log", EXAMPLE, "--json", "--output", target)
    report = json.loads(out)
    rows = {row["figure"]: row for row in report["rows"]}

    assert code == 0
    assert target.read_text() == out
    assert report["schema"] == "kvplan.log/1"
    assert report["memory"]["before"] == {
        "gib": 78.52,
        "half_digit_gib": 0.005,
        "lines": [3],
        "ranks": ["TP1"],
    }
    assert rows["k_gib"]["agrees"]
    assert rows["max_total_num_tokens"]["cause"]["name"] == "second_reading"
    assert rows["max_total_num_tokens"]["low"] < rows["max_total_num_tokens"]["high"]
    assert len(report["figures"]) == 31
    assert kvplan("log", EXAMPLE, "--json")[1] == out


def test_a_failed_start_agrees_with_a_plan_that_does_not_start(kvplan, tmp_path):
    path = tmp_path / "server.log"
    path.write_text(FAILED)
    argv = ["log", path, "qwen2.5-32b", "--mem-fraction-static"]
    code, out, _ = kvplan(*argv, "0.7")
    assert code == 0
    assert out.startswith("agrees: 2 figures")

    code, out, _ = kvplan(*argv, "0.85", "--quiet")
    assert (code, out) == (1, "differs: the server did not start, the plan starts\n")


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["none.log"], "none.log: cannot read: no such file"),
        (["empty.log"], "no line of an SGLang start-up is in this file"),
        (["bare.log"], "the log does not name a shipped model"),
        (["bare.log", "qwen3-8b"], "the log does not tell the card"),
        (["bare.log", "qwen3-9b", "--gpu", "h100"], "unknown model 'qwen3-9b'"),
        (["bare.log", "qwen3-8b", "--gpu", "h101"], "unknown gpu 'h101'"),
        (["bare.log", "qwen3-8b", "--gpu", "h100", "--tp-sze", "2"], "did you mean"),
        (["bare.log", "--launch", "echo", "--gpu", "h100"], "no SGLang server is launched here"),
    ],
)
def test_what_cannot_be_compared_is_refused(kvplan, tmp_path, monkeypatch, argv, problem):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.log").write_text("nothing\n")
    (tmp_path / "bare.log").write_text("Memory pool end. avail mem=1.00 GB\n")
    code, out, err = kvplan("log", *argv)

    assert (code, out) == (2, "")
    assert problem in err
    assert "hint" in err or "cannot read" in err


def test_arguments_of_other_versions_are_taken_or_noted(kvplan, tmp_path):
    path = tmp_path / "server.log"
    text = EXAMPLE.read_text().replace("'fa3'", "'cutlass_mla'").replace("8192,", "'many',", 1)
    path.write_text(text.replace("Qwen/Qwen3-8B", "/models/Qwen3-8B"))
    code, out, _ = kvplan("log", path)

    assert code == 0
    assert "the log's attention_backend 'cutlass_mla' is none of SGLang 0.5.23" in out
    assert "the log's chunked_prefill_size 'many' is none of SGLang 0.5.23" in out
    assert "'/models/Qwen3-8B' is taken for qwen3-8b" in out


def test_printed_values_are_not_resolved_twice(kvplan, tmp_path):
    path = tmp_path / "server.log"
    text = EXAMPLE.read_text().replace("dp_size=1", "dp_size=2, enable_dp_attention=True")
    path.write_text(text)
    report = json.loads(kvplan("log", path, "--json")[1])
    rows = {row["figure"]: row for row in report["rows"]}

    assert rows["chunked_prefill_size"]["predicted"] == 8192


def fuzz(kvplan, tmp_path, count: int, seed: int) -> float:
    """Seconds of a core that the slowest of many damaged logs took."""
    chance = random.Random(seed)
    samples = [EXAMPLE.read_text(), TWO_RANKS, FAILED]
    path, slowest, compared = tmp_path / "server.log", 0.0, 0
    for number in range(count):
        text = mutated(chance.choice(samples), chance)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        model = chance.choice([[], ["qwen3-8b"], ["granite-4.0-h-micro"], ["gemma-4-26b-a4b"]])
        model += chance.choice([[], ["--gpu", "h200"], ["--mem-fraction-static", "0.8"]])
        started = time.process_time()
        code, out, err = kvplan("log", path, *model, *(["--json"] if number % 2 else []))
        slowest = max(slowest, time.process_time() - started)

        compared += code < 2
        assert code in (0, 1, 2), (number, code, err)
        assert "Traceback" not in err
        assert out if code < 2 else err.startswith("error:"), (number, err)
    assert compared > count / 4
    return slowest


def test_damaged_logs_are_compared_or_refused(kvplan, tmp_path):
    assert fuzz(kvplan, tmp_path, FUZZED, seed=11) <= SECONDS


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 110))
def test_many_damaged_logs_are_compared_or_refused(kvplan, tmp_path, seed):
    assert fuzz(kvplan, tmp_path, 10_000, seed) <= SECONDS
