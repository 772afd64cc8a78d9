"""`kvplan size` from the outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def test_the_verdict_comes_first(kvplan):
    code, out, _ = kvplan("size", "llama-3.1-8b", "--gpu", "h100")

    assert code == 0
    assert out.startswith("starts: 418,177 tokens of KV · 3 full-context requests (131,072)")
    assert "the card" in out


def test_json_is_the_same_bytes_twice_and_sorted(kvplan):
    _, first, _ = kvplan("size", "qwen3-next-80b-a3b", "--gpu", "h100", "--tp-size", "4", "--json")
    _, second, _ = kvplan("size", "qwen3-next-80b-a3b", "--gpu", "h100", "--tp-size", "4", "--json")

    report = json.loads(first)
    assert first == second
    assert list(report) == sorted(report)
    assert report["schema"] == "kvplan.size/1"
    entries = report["ledger"]["entries"]
    assert sum(entry["bytes"] for entry in entries) == report["ledger"]["total_bytes"]


def test_output_writes_the_json_and_nothing_half(kvplan, tmp_path: Path):
    file = tmp_path / "plan.json"
    _, printed, _ = kvplan("size", "qwen3-8b", "--gpu", "h100", "--json", "--output", file)

    assert file.read_text() == printed
    assert [each.name for each in tmp_path.iterdir()] == ["plan.json"]
    code, _, err = kvplan("size", "qwen3-8b", "--gpu", "h100", "--output", tmp_path / "plan.pdf")
    assert code == 2
    assert ".json" in err


def test_every_resolved_value_says_where_it_comes_from(kvplan):
    _, out, _ = kvplan("size", "qwen3-8b", "--gpu", "h100", "--page-size", "16", "--json")

    resolved = json.loads(out)["resolved"]
    assert resolved["page_size"] == {"value": 16, "from": "given"}
    assert all(entry["from"] for entry in resolved.values())


def test_too_little_memory_is_exit_1_with_both_sides(kvplan):
    code, out, _ = kvplan(
        "size", "qwen2.5-32b", "--gpu", "a100-80gb", "--mem-fraction-static", "0.7"
    )

    assert code == 1
    assert out.startswith("does not start:")
    assert "--mem-fraction-static: raise to ≥" in out


def test_a_cure_starts_and_the_value_before_it_does_not(kvplan):
    argv = ("size", "qwen2.5-32b", "--gpu", "a100-80gb", "--json", "--mem-fraction-static")
    cure = next(
        each
        for each in json.loads(kvplan(*argv, "0.7")[1])["cures"]
        if each["flag"] == "--mem-fraction-static"
    )

    assert kvplan(*argv, cure["value"])[0] == 0
    assert kvplan(*argv, f"{float(cure['value']) - 0.001:.3f}")[0] == 1


def test_settings_that_the_engine_refuses_are_exit_2(kvplan):
    code, out, err = kvplan(
        "size", "deepseek-v3.2", "--gpu", "h200", "--kv-cache-dtype", "fp8_e5m2"
    )

    assert (code, out) == (2, "")
    assert err.startswith("error:")


@pytest.mark.parametrize(
    ("argv", "message", "hint"),
    [
        (("lama-3.1-8b", "--gpu", "h100"), "unknown model 'lama-3.1-8b'", "llama-3.1-8b"),
        (("llama-3.1-8b", "--gpu", "h10"), "unknown gpu 'h10'", "h100"),
        (("llama-3.1-8b",), "no GPU is named", "--gpu"),
        (("--gpu", "h100"), "no model is named", "presets list"),
        (("llama-3.1-8b", "--gpu", "h100", "--page-sise", "16"), "--page-sise", "--page-size"),
        (("llama-3.1-8b", "--gpu", "h100", "--set", "page_sise=16"), "page_sise", "page_size"),
        (("llama-3.1-8b", "--gpu", "h100", "--set", "gpu.memory_mib=1e9"), "1e9", "1000000000"),
        (("llama-3.1-8b", "--gpu", "h100", "--free-after", "-1"), "--free-after", ""),
        (
            ("qwen3-8b", "--gpu", "h100", "--draft", "draft-qwen3-8b-eagle3"),
            "speculative",
            "EAGLE3",
        ),
    ],
)
def test_bad_input_names_the_value_and_the_next_step(kvplan, argv, message, hint):
    code, out, err = kvplan("size", *argv)

    assert (code, out) == (2, "")
    assert message in err
    assert hint in err
    assert "Traceback" not in err


def test_launch_lines_and_flags_make_the_same_plan(kvplan):
    line = "python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 2 --page-size 16"
    _, written, _ = kvplan("size", "--launch", line, "--gpu", "h100", "--json")
    _, direct, _ = kvplan(
        "size", "qwen3-8b", "--gpu", "h100", "--tp-size", "2", "--page-size", "16", "--json"
    )

    assert json.loads(written)["pool"] == json.loads(direct)["pool"]


def test_all_ranks_shows_each_stage_and_the_least_counts(kvplan):
    argv = ("size", "llama-3.1-70b", "--gpu", "h100", "--tp-size", "4", "--pp-size", "3")
    report = json.loads(kvplan(*argv, "--all-ranks", "--json")[1])

    assert [stage["layers"] for stage in report["stages"]] == [[0, 26], [26, 53], [53, 80]]
    least = min(stage["profiled_tokens"] for stage in report["stages"])
    assert report["pool"]["max_total_num_tokens"] == least


def test_planning_loads_nothing_heavy():
    code = (
        "import sys; from kvplan.commands.app import main; main(['size', 'llama-3.1-8b', '--gpu', 'h100']);"
        "print(sorted({'torch', 'numpy', 'pydantic', 'pandas'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )

    assert done.stderr.strip() == "[]"


def test_flags_that_no_plan_follows_are_noted(kvplan):
    argv = ("size", "llama-3.1-8b", "--gpu", "h100", "--device", "cuda")
    code, out, _ = kvplan(*argv, "--json-model-override-args", '{"a": 1}')

    assert code == 0
    assert "'json_model_override_args' may change sizes" in out
    assert "'device'" not in out


def test_a_pool_that_serves_no_request_does_not_start(kvplan):
    code, out, _ = kvplan("size", "qwen3-8b", "--gpu", "h100", "--max-total-tokens", "1")

    assert code == 1
    assert "1 tokens serve no request" in out


@pytest.mark.parametrize("spelling", ["eagle3", "EAGLE3", "Eagle3"])
def test_algorithms_are_read_in_any_case(kvplan, spelling):
    argv = ("size", "qwen3-8b", "--gpu", "h100", "--draft", "draft-qwen3-8b-eagle3", "--quiet")
    _, flag, _ = kvplan(*argv, "--speculative-algorithm", "EAGLE3")
    code, out, _ = kvplan(*argv, "--set", f"speculative_algorithm={spelling}")

    assert (code, out) == (0, flag)


def test_a_request_longer_than_the_context_never_fits(kvplan):
    argv = ("size", "llama-3.1-8b", "--gpu", "h100", "--context", "200000", "--json")
    asked = json.loads(kvplan(*argv)[1])["capacity"][-1]

    assert asked == {"context_tokens": 200_000, "requests": 0, "bound_by": "context length"}


def test_a_folder_whose_name_is_no_text_is_sized(kvplan, tmp_path: Path, shared: Path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/mod\xff"))
    folder.mkdir()
    facts = json.loads((shared / "facts" / "models" / "qwen3-8b.json").read_text())
    (folder / "config.json").write_text(json.dumps(facts["config"]))

    code, out, err = kvplan("size", folder, "--gpu", "h100", "--weights-gib", "16", "--json")

    assert (code, err) == (0, "")
    assert json.loads(out)["model"]["name"] == "mod?"
