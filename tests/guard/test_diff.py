"""Two plans side by side: every kind of source, effects that add up, order by effect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvplan.guard.record import Record
from kvplan.guard.sources import Common, parse_source, read_source
from tests.conftest import REPOSITORY

LLAMA = "llama-3.1-8b@h100"
MEASURED = "memory.free_before_gib=78.5,memory.free_after_gib=63.5"


@pytest.fixture
def diff(kvplan):
    """Compare two sources: (exit code, report)."""

    def run(a: str, b: str, *options: str):
        code, out, err = kvplan("diff", a, b, "--json", *options)
        assert not err, err
        return code, json.loads(out)

    return run


def alone(report, name: str) -> dict[str, tuple[float, float]]:
    """The figures that one input moves alone."""
    (change,) = (each for each in report["inputs"] if each["name"] == name)
    return {each["name"]: (each["before"], each["after"]) for each in change["alone"]}


def test_the_same_plan_has_no_differences(diff, kvplan):
    code, report = diff(LLAMA, LLAMA)

    assert code == 0
    assert report["verdict"]["same"]
    assert [report["inputs"], report["resolved"], report["figures"]] == [[], [], []]
    assert kvplan("diff", LLAMA, LLAMA, "--exit-code", "-q")[0] == 0
    assert kvplan("diff", LLAMA, f"{LLAMA},page_size=16", "--exit-code", "-q")[0] == 1


def test_figures_are_those_of_size_on_either_side(diff, kvplan):
    _, report = diff(f"{LLAMA},{MEASURED}", f"{LLAMA},{MEASURED},kv_cache_dtype=fp8_e4m3")
    figures = {each["name"]: (each["before"], each["after"]) for each in report["figures"]}

    assert figures["tokens"] == (414_085, 828_170)
    assert figures["token_bytes"] == (131_072, 65_536)
    assert "budget_bytes" not in figures
    for side, flags in enumerate(([], ["--kv-cache-dtype", "fp8_e4m3"])):
        argv = ["size", "llama-3.1-8b", "--gpu", "h100", "--json", "--free-before", "78.5"]
        size = json.loads(kvplan(*argv, "--free-after", "63.5", *flags)[1])
        assert figures["tokens"][side] == size["pool"]["max_total_num_tokens"]
        assert figures["max_running_requests"][side] == size["pool"]["max_running_requests"]


def test_each_input_has_its_effect_alone(diff):
    a = f"{LLAMA},{MEASURED}"
    _, report = diff(a, f"{a},kv_cache_dtype=fp8_e4m3,mem_fraction_static=0.9,context_length=4096")

    assert [each["name"] for each in report["inputs"]] == [
        "kv_cache_dtype",
        "mem_fraction_static",
        "context_length",
    ]
    assert alone(report, "kv_cache_dtype")["tokens"] == (414_085, 828_170)
    # (63.5 − 78.5 × 0.1) GiB / 131,072 B
    assert alone(report, "mem_fraction_static")["tokens"] == (414_085, 455_884)
    assert "tokens" not in alone(report, "context_length")
    assert alone(report, "context_length")["row_width"] == (131_076, 4_100)


def test_figures_come_with_the_largest_change_first(diff):
    _, report = diff(LLAMA, "qwen3-32b@h200,tp_size=4,page_size=64")
    shares = [abs(each["share"]) for each in report["figures"]]

    assert shares == sorted(shares, reverse=True)
    assert len(shares) > 5


def test_a_resolved_value_says_who_set_it_on_either_side(diff):
    _, report = diff(LLAMA, f"{LLAMA},page_size=64")
    (row,) = report["resolved"]

    assert row == {
        "name": "page_size",
        "before": 1,
        "after": 64,
        "before_from": "engine default (page-size)",
        "after_from": "given",
    }
    assert report["inputs"][0]["differences"] == [
        {
            "name": "page_size",
            "before": None,
            "after": 64,
            "before_resolved": {"value": 1, "from": "engine default (page-size)"},
            "after_resolved": None,
        }
    ]


def test_a_change_that_the_engine_refuses_alone_says_why(diff):
    a, b = (f"{LLAMA},disable_radix_cache=true", f"{LLAMA},enable_hierarchical_cache=true")
    _, report = diff(a, b)
    problems = {each["name"]: each["problem"] for each in report["inputs"]}

    assert (
        problems["enable_hierarchical_cache"] == "enable_hierarchical_cache needs the radix cache"
    )
    assert problems["disable_radix_cache"] is None


def test_fields_of_one_model_are_told_apart(diff):
    _, report = diff(LLAMA, f"{LLAMA},model.num_layers=16,model.attention.num_kv_heads=4")

    names = {each["name"]: each["differences"] for each in report["inputs"]}
    assert {each["name"] for each in names["model.attention"]} == {"model.attention.num_kv_heads"}
    assert names["model.num_layers"][0]["after"] == 16
    assert alone(report, "model.num_layers")["token_bytes"] == (131_072, 65_536)


def test_a_side_that_does_not_start_is_the_verdict(diff, kvplan):
    code, report = diff(LLAMA, f"{LLAMA},mem_fraction_static=0.1")

    assert code == 1
    assert report["verdict"]["text"].startswith("does not start: ")
    code, report = diff(f"{LLAMA},mem_fraction_static=0.1", LLAMA)
    assert code == 0
    assert report["verdict"]["text"].startswith(
        "starts with 418,177 tokens of KV; before it did not"
    )
    code, out, _ = kvplan("diff", LLAMA, f"{LLAMA},mem_fraction_static=0.1")
    assert "does not start" in out


FILES = {
    "plan.yaml": "model: llama-3.1-8b\ngpu: h100\nserver: {page_size: 16}\n",
    "budget.yaml": "model: llama-3.1-8b\ngpu: h100\nserver: {page_size: 16}\nrequire: {min_tokens: 1}\n",
    "several.yaml": "budgets:\n  a: {model: qwen3-8b, gpu: h100}\n  b: {model: llama-3.1-8b, gpu: h100, server: {page_size: 16}}\n",
    "settings.yaml": "page_size: 16\n",
    "run.sh": "python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B --page-size 16\n",
    "server.yaml": "model-path: meta-llama/Llama-3.1-8B\npage-size: 16\n",
    "compose.yaml": "services:\n  one:\n    command: sglang serve meta-llama/Llama-3.1-8B --page-size 16\n  two:\n    command: sglang serve other/model\n",
    "mine.yaml": None,
    "config.json": None,
}  # fmt: skip
SOURCES = {
    "a preset": "llama-3.1-8b@h100,page_size=16",
    "an HF id": "meta-llama/Llama-3.1-8B@h100,page_size=16",
    "a plan": "plan.yaml",
    "a budget": "budget.yaml",
    "one of several budgets": "several.yaml#b",
    "engine settings": "settings.yaml",
    "a launch script": "run.sh@h100",
    "a launch script and --gpu": "run.sh",
    "a server config": "server.yaml@h100",
    "a service": "compose.yaml#one@h100",
    "a model's YAML": "mine.yaml@h100,page_size=16",
    "a config.json": "config.json@h100,page_size=16",
    "a lock": "kvplan.lock.json#plan.yaml",
}


@pytest.fixture
def files(tmp_path, monkeypatch, kvplan, shared):
    """One plan in every form."""
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        if text is not None:
            (tmp_path / name).write_text(text)
    (tmp_path / "mine.yaml").write_text(kvplan("presets", "show", "llama-3.1-8b")[1])
    config = shared / "facts/models/llama-3.1-8b.json"
    (tmp_path / "config.json").write_text(json.dumps(json.loads(config.read_text())["config"]))
    kvplan("check", "plan.yaml", "budget.yaml", "--lock", "kvplan.lock.json", "--update")
    return tmp_path


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.usefixtures("files")
def test_every_form_of_a_plan_is_the_same_plan(name):
    common = Common("llama-3.1-8b" if name == "engine settings" else None, "h100")
    reference = read_source("plan.yaml", common)

    found = read_source(SOURCES[name], common)

    assert isinstance(found, Record)
    assert isinstance(reference, Record)
    assert found.figures["tokens"] == reference.figures["tokens"] == 418_176
    assert found.resolved.keys() == reference.resolved.keys()


def test_a_size_report_is_compared_by_its_outcome(diff, kvplan, tmp_path):
    for name, flags in (("a", []), ("b", ["--page-size", "16"])):
        out = kvplan("size", "gpt-oss-20b", "--gpu", "h100", *flags, "--json")[1]
        (tmp_path / f"{name}.json").write_text(out)
    live = diff("gpt-oss-20b@h100", "gpt-oss-20b@h100,page_size=16")[1]

    saved = diff(str(tmp_path / "a.json"), str(tmp_path / "b.json"))[1]

    assert saved["inputs"] == []
    assert saved["figures"] == live["figures"]
    assert saved["resolved"] == live["resolved"]


def test_a_log_is_the_launch_that_it_prints_with_its_measured_memory(diff, kvplan):
    log = str(REPOSITORY / "docs/examples/server.log")
    logged = json.loads(kvplan("log", log, "--json")[1])
    predicted = {each["figure"]: each["predicted"] for each in logged["rows"]}

    code, report = diff(log, f"{log}@h100,mem_fraction_static=0.8")

    (tokens,) = (each for each in report["figures"] if each["name"] == "tokens")
    assert code == 0
    assert tokens["before"] == predicted["max_total_num_tokens"] == 859_424
    assert [each["name"] for each in report["inputs"]] == ["mem_fraction_static"]


def test_two_locks_list_the_plans_that_moved(kvplan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = {
        name: f"model: {name}\ngpu: h100\n" for name in ("qwen3-8b", "llama-3.1-8b", "gpt-oss-20b")
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    kvplan("check", ".", "--lock", "old.lock.json", "--update")
    (tmp_path / "gpt-oss-20b.yaml").unlink()
    (tmp_path / "new.yaml").write_text("model: qwen3-32b\ngpu: h200\n")
    (tmp_path / "qwen3-8b.yaml").write_text(
        texts["qwen3-8b"] + "server: {mem_fraction_static: 0.8}\n"
    )
    (tmp_path / "llama-3.1-8b.yaml").write_text(
        texts["llama-3.1-8b"] + "server: {mem_fraction_static: 0.6}\n"
    )
    kvplan("check", ".", "--lock", "new.lock.json", "--update")

    code, out, _ = kvplan("diff", "old.lock.json", "new.lock.json", "--json")
    report = json.loads(out)

    assert code == 0
    assert report["verdict"]["text"] == "2 moved, 1 added, 1 removed of 4 plans"
    assert [each["name"] for each in report["plans"]] == ["llama-3.1-8b.yaml", "qwen3-8b.yaml"]
    assert (report["added"], report["removed"]) == (["new.yaml"], ["gpt-oss-20b.yaml"])
    text = kvplan("diff", "old.lock.json", "new.lock.json")[1]
    assert "mem_fraction_static 0.835 (engine default) → 0.6: tokens of KV −" in text
    assert kvplan("diff", "old.lock.json", "old.lock.json", "--exit-code")[0] == 0


REFUSED = {
    "no gpu": ("llama-3.1-8b", "no GPU is named", "write 'llama-3.1-8b@GPU', or add --gpu"),
    "an empty gpu": ("llama-3.1-8b@", "no GPU stands behind '@'", "MODEL@GPU"),
    "an unknown gpu": ("llama-3.1-8b@h101", "unknown gpu 'h101'", "did you mean 'h100'?"),
    "an unknown model": ("lama-3.1-8b@h100", "unknown model 'lama-3.1-8b'", "did you mean 'llama-3.1-8b'?"),
    "an unknown argument": (f"{LLAMA},page_sise=1", "unknown field 'page_sise'", "did you mean 'page_size'?"),
    "a wrong value": (f"{LLAMA},page_size=many", "'page_size' must be an integer", ""),
    "several plans": ("several.yaml", "2 plans are in this file", "several.yaml#a"),
    "a name of nothing": ("several.yaml#c", "no plan is named 'c'", "one of: a, b"),
    "two services": ("compose.yaml@h100", "2 servers are launched", "choose: one, two"),
    "a changed lock": ("kvplan.lock.json#plan.yaml@h100", "recorded plans cannot be changed", ""),
    "a folder": ("sub@h100", "no config.json in this folder", ""),
    "no launch": ("empty.sh@h100", "no SGLang server is launched here", ""),
    "a broken plan": ("broken.yaml@h100", "unknown field 'gppu'", "did you mean 'gpu'?"),
    "settings without a model": ("settings.yaml@h100", "no model is named", ""),
    "a name that no file has": ("x" * 5000 + "@h100", "unknown model", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_source_that_cannot_be_read_is_refused(kvplan, files, case):
    (files / "sub").mkdir()
    (files / "empty.sh").write_text("echo hello\n")
    (files / "broken.yaml").write_text("gppu: h100\nmodel: x\nserver: {}\n")
    source, problem, hint = REFUSED[case]

    code, out, err = kvplan("diff", LLAMA, source)

    assert (code, out) == (2, "")
    assert problem in err
    assert hint in err


def test_a_source_is_taken_apart():
    named = parse_source("a/b.yaml#x@h100,server.page_size=16,pp_layer_partition=[1,2]")

    assert (named.base, named.name, named.gpu) == ("a/b.yaml", "x", "h100")
    assert [(each.key, each.value) for each in named.overrides] == [
        ("server.page_size", 16),
        ("pp_layer_partition", [1, 2]),
    ]


def test_the_report_goes_to_a_file_too(kvplan, tmp_path):
    path = tmp_path / "diff.json"

    out = kvplan("diff", LLAMA, f"{LLAMA},page_size=16", "--json", "--output", path)[1]

    assert path.read_text() == out
    assert kvplan("diff", LLAMA, LLAMA, "--output", tmp_path / "d.html")[0] == 2


def test_names_that_are_no_text_are_spelled_out(tmp_path):
    name = os.fsencode(tmp_path) + b"/\xff.yaml"
    Path(os.fsdecode(name)).write_text("model: llama-3.1-8b\ngpu: h100\n")
    command = [sys.executable, "-P", "-m", "kvplan", "diff"]

    for options in ([], ["--json"]):
        done = subprocess.run([*command, LLAMA, name, *options], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert rb"\udcff.yaml" in done.stdout
