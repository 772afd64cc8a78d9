"""Budgets are held against the plans of their launches, file by file."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from kvplan.guard.check import check_files
from kvplan.planner import PlanInputs, plan, read_inputs
from kvplan.sizing.plan import Plan
from tests.conftest import REPOSITORY

BUDGETS = REPOSITORY / "tests/data/budgets"
MEASURED = "memory: {free_before_gib: 78.5, free_after_gib: 63.5}\n"
BASE = f"model: llama-3.1-8b\ngpu: h100\n{MEASURED}"


@pytest.fixture
def checked(kvplan, tmp_path):
    """Check one budget's text: (exit code, its report)."""

    def run(text: str, *options: str):
        path = tmp_path / "budget.yaml"
        path.write_text(text)
        code, out, _ = kvplan("check", str(path), "--json", *options)
        return code, json.loads(out)["budgets"][0]

    return run


def test_the_figures_are_those_of_size(kvplan, checked):
    code, budget = checked(BASE + "require: {min_tokens: 1, max_row_width: 1000000}\n")

    assert code == 0
    found = {each["requirement"]: each["have"] for each in budget["findings"]}
    size = json.loads(
        kvplan(
            *("size", "llama-3.1-8b", "--gpu", "h100", "--json"),
            *("--free-before", "78.5", "--free-after", "63.5"),
        )[1]
    )
    assert found["min_tokens"] == size["pool"]["max_total_num_tokens"] == 414_085
    assert found["max_row_width"] == size["pool"]["req_to_token_row_width"] == 131_076


# 414,085 tokens = floor((63.5 − 78.5 × 0.165) GiB / 131,072 B), and one more for padding in the pool;
# 2,049 rows of 131,076 int32; the headroom is 63.5 GiB less pool, rows, free list and row generations
HOLDS = {
    "min_tokens": ("414085", "414086"),
    "max_row_width": ("131076", "131075"),
    "max_kv_gib": ("50.5476075", "50.5476074"),
    "max_req_to_token_mib": ("1024.5312653", "1024.5312652"),
    "min_headroom_gib": ("11.9487733", "11.9487734"),
    "max_host_gib": ("0", None),
    "fits_full_context": ("true", None),
    "min_requests": ("{context: 131072, requests: 3}", "{context: 131072, requests: 4}"),
}


@pytest.mark.parametrize("name", HOLDS)
def test_a_requirement_holds_up_to_its_figure_and_breaks_beyond(checked, name):
    held, broken = HOLDS[name]

    code, budget = checked(BASE + f"require: {{{name}: {held}}}\n")

    assert (code, budget["status"]) == (0, "holds")
    if broken is not None:
        code, budget = checked(BASE + f"require: {{{name}: {broken}}}\n")
        assert (code, budget["status"]) == (1, "broken")
        assert [each["requirement"] for each in budget["findings"] if not each["held"]] == [name]


BROKEN = {
    "min_tokens": ("450000", "--mem-fraction-static 0.891 ", "--kv-cache-dtype fp8_e4m3"),
    "max_kv_gib": ("40", "--mem-fraction-static "),
    "min_headroom_gib": ("20.5", "--mem-fraction-static "),
    "max_row_width": ("32772", "--context-length 32768"),
    "max_req_to_token_mib": ("256", "--max-running-requests 510", "--context-length "),
    "min_requests": ("{context: 65536, requests: 7}", "--mem-fraction-static "),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_hint_names_a_flag_with_which_the_requirement_holds(checked, name):
    bound, *flags = BROKEN[name]
    text = BASE + f"require: {{{name}: {bound}}}\n"
    _, budget = checked(text)
    hint = next(each["hint"] for each in budget["findings"] if not each["held"])

    for alternative in hint.split(", or "):
        flag, value = alternative.split(" (")[0].removeprefix("--").split(" ")
        argument = flag.replace("-", "_")
        code, again = checked(text + f"server: {{{argument}: {value}}}\n")
        assert (code, again["status"]) == (0, "holds"), alternative
    for flag in flags:
        assert flag in hint


def test_requests_longer_than_the_context_are_not_served(checked):
    require = "require: {min_requests: {context: 8192, requests: 4}}\n"
    code, budget = checked(BASE + "server: {context_length: 4096}\n" + require)

    assert code == 1
    assert (
        "8,192 tokens: 0, at least 4 required (bound by the context length)"
        in budget["findings"][1]["text"]
    )
    assert budget["findings"][1]["hint"] == "--context-length 8192"
    assert checked(BASE + "server: {context_length: 8192}\n" + require)[0] == 0


def test_a_launch_that_does_not_start_breaks_its_budget_with_a_cure(checked):
    code, budget = checked(BASE + "server: {mem_fraction_static: 0.15}\n")

    assert code == 1
    assert budget["findings"][0]["text"].startswith("does not start: ")
    assert budget["findings"][0]["hint"].startswith("--mem-fraction-static: raise to ≥ 0.1")


def test_a_launch_may_have_to_be_refused(checked):
    text = BASE + "server: {mem_fraction_static: 0.15}\nrequire: {starts: false}\n"

    assert checked(text)[0] == 0
    assert checked(text.replace("0.15", "0.85"))[0] == 1


def test_a_written_launch_is_planned_like_its_arguments(checked):
    line = "python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B --page-size 64"
    text = "gpu: h100\n{}require: {{min_tokens: 1}}\n{}\n"
    direct = checked(text.format(MEASURED, "model: llama-3.1-8b\nserver: {page_size: 64}"))
    written = checked(text.format(MEASURED, f"launch: {line}"))

    assert written == direct


def test_fields_stand_above_the_written_launch(checked):
    line = "sglang serve --model-path /models/mine --page-size 64 --context-length 4096"
    _, budget = checked(
        f"launch: {line}\n{BASE}server: {{context_length: 8192}}\nrequire: {{max_row_width: 1}}\n"
    )

    assert budget["findings"][1]["have"] == 8192 + 4


def test_paths_count_from_the_budget(kvplan, monkeypatch):
    monkeypatch.chdir("/")

    code, out, _ = kvplan("check", str(BUDGETS / "served.yaml"))

    assert code == 0
    assert "967,056 tokens of KV" in out
    assert "warning: 'lora_paths' takes memory that the plan does not model" in out


def test_own_presets_lie_beside_the_budget(kvplan, tmp_path):
    folder = tmp_path / "presets"
    folder.mkdir()
    (folder / "card.yaml").write_text("name: small\nmemory_mib: 40960\nsm: 80\n")
    (tmp_path / "b.yaml").write_text("model: llama-3.1-8b\ngpu: presets/card.yaml\n")

    code, out, _ = kvplan("check", str(tmp_path / "b.yaml"))

    assert code == 0, out


def test_one_file_may_hold_several_budgets(kvplan):
    code, out, _ = kvplan("check", str(BUDGETS / "fleet.yaml"), "--json")

    report = json.loads(out)
    assert code == 0
    assert [each["name"].partition("#")[2] for each in report["budgets"]] == [
        "chat",
        "too big for the card",
    ]
    assert report["verdict"] == {"holds": True, "text": "2 budgets held"}


REFUSED = {
    "unknown gpu": ("model: llama-3.1-8b\ngpu: h101\n", "2:6", "did you mean 'h100'?"),
    "unknown model": ("gpu: h100\nmodel: llama-3.1-8\n", "2:8", "did you mean 'llama-3.1-8b'?"),
    "unknown field": (BASE + "require:\n  min_tokns: 4\n", "5:3", "did you mean 'min_tokens'?"),
    "unknown argument": (BASE + "server: {page_sise: 4}\n", "4:10", "did you mean 'page_size'?"),
    "wrong type": (BASE + "require: {min_tokens: many}\n", "4:23", None),
    "a trap": (BASE + "require: {min_tokens: 1e9}\n", "4:23", "write 1000000000 or 1.0e+9"),
    "no model": ("gpu: h100\n", "1:1", "add 'model: NAME'"),
    "no gpu": ("model: llama-3.1-8b\n", "1:1", "add 'gpu: NAME'"),
    "a combination": (
        BASE + "server: {enable_hierarchical_cache: true, disable_radix_cache: true}\n",
        "1:1",
        "drop disable_radix_cache",
    ),
    "two launches": (BASE + "launch: x\nlaunch_file: y\n", "1:1", "keep one of them"),
    "no such launch": (BASE + "launch_file: nothing.sh\n", None, None),
    "a name of nothing": (BASE + "launch_name: x\n", "1:1", None),
    "traffic without a workload": (BASE + "require: {no_retractions: true}\n", "4:27", "workload"),
    "a contradiction": (BASE + "require: {starts: false, min_tokens: 1}\n", "4:38", "remove it"),
    "no percentage": (BASE + "no_regress: 2\n", "4:13", None),
    "several with one at fault": ("budgets:\n  a: {gpu: 3}\n", "2:12", None),
    "none of several": ("budgets: {}\n", "1:10", None),
    "no mapping": ("- model\n", "1:1", None),
    "an empty file": ("", None, None),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_named_with_its_line(kvplan, tmp_path, case):
    text, place, hint = REFUSED[case]
    path = tmp_path / "budget.yaml"
    path.write_text(text)

    code, out, _ = kvplan("check", str(path))

    assert code == 2
    assert "1 not readable of 1 budget" in out
    assert f"{path}:{place}: " in out if place else str(path.parent) in out
    assert hint is None or hint in out


def test_a_bad_file_does_not_hide_the_others(kvplan, tmp_path):
    (tmp_path / "a.yaml").write_text("gpu: h100\n")
    (tmp_path / "b.yaml").write_text(BASE + "require: {min_tokens: 10000000}\n")
    (tmp_path / "c.yml").write_text(BASE)
    (tmp_path / ".hidden.yaml").write_text("broken: [")
    (tmp_path / "notes.txt").write_text("no budget")

    code, out, _ = kvplan("check", str(tmp_path), "missing.yaml", "--json")

    report = json.loads(out)
    assert code == 2
    assert [each["status"] for each in report["budgets"]] == ["bad", "broken", "holds", "bad"]
    assert report["budgets"][3]["error"]["problem"] == "cannot read: no such file or directory"


def test_files_come_in_order_and_once(tmp_path):
    for name in ("b.yaml", "a.yaml", "sub/c.yaml"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(BASE)

    results = check_files([tmp_path / "b.yaml", tmp_path])

    assert [Path(each.title).name for each in results] == ["b.yaml", "a.yaml", "c.yaml"]


def test_a_folder_without_budgets_is_refused(kvplan, tmp_path):
    code, out, _ = kvplan("check", str(tmp_path))

    assert code == 2
    assert "no .yaml file is in this folder" in out


def test_stages_count_with_their_fullest_card(checked):
    text = "model: llama-3.3-70b-instruct\ngpu: h100\nparallel: tp4-pp2\nserver: {pp_layer_partition: [30, 50]}\n"
    _, budget = checked(text + "require: {max_kv_gib: 0, min_tokens: 1}\n")
    have = {each["requirement"]: each["have"] for each in budget["findings"]}
    outcome = plan(
        read_inputs(
            PlanInputs(
                model="llama-3.3-70b-instruct",
                gpu="h100",
                parallel="tp4-pp2",
                server={"pp_layer_partition": [30, 50]},
            )
        )
    ).outcome

    assert isinstance(outcome, Plan)
    # two KV heads of 128 in bfloat16, K and V, 50 layers, one padding slot
    assert have["max_kv_gib"] * 2**30 == (outcome.tokens + 1) * 2 * 2 * 128 * 2 * 50


def test_the_host_tier_counts_all_ranks_of_the_machine(checked):
    text = "model: deepseek-v3.2\ngpu: h200\nparallel: tp8\nserver: {enable_hierarchical_cache: true, hicache_size: 50}\n"
    code, budget = checked(text + "require: {max_host_gib: 100}\n")
    finding = budget["findings"][1]

    # 50 decimal GB of latents a rank, and an index key of 132 B a layer to each latent of 1,152 B
    assert code == 1
    assert finding["have"] == pytest.approx(8 * 50e9 / 2**30 * (1 + 132 / 1152), rel=1e-3)
    assert finding["hint"].startswith("--hicache-size ")


def test_a_host_tier_of_unknown_bytes_is_not_judged(checked):
    text = "model: deepseek-v4-flash\ngpu: h200\nparallel: tp8\nserver: {enable_hierarchical_cache: true}\n"

    code, budget = checked(text + "require: {max_host_gib: 100}\n")

    assert code == 2
    assert budget["error"]["problem"] == "the bytes of this model's host tier are not modelled"


def test_a_hundred_budgets_take_two_seconds(kvplan, tmp_path):
    models = ("llama-3.1-8b", "qwen3-32b", "deepseek-v3", "gpt-oss-120b", "qwen3-next-80b-a3b")
    for number in range(100):
        model = models[number % len(models)]
        (tmp_path / f"{number:03}.yaml").write_text(
            f"model: {model}\ngpu: h200\nparallel: tp8\nserver: {{context_length: {4096 + number}}}\n"
            "require: {fits_full_context: true, min_tokens: 1000, min_headroom_gib: 1}\n"
        )
    started = time.process_time()

    code, out, _ = kvplan("check", str(tmp_path), "-q")

    assert (code, out.strip()) == (0, "100 budgets held")
    assert time.process_time() - started < 2
