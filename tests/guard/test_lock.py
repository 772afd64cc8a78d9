"""Lock files record plans to the byte, and a check against one names the input that moved a capacity."""

from __future__ import annotations

import json

import msgspec
import pytest

from kvplan.catalog import load_model
from kvplan.guard.check import check_files
from kvplan.guard.lock import lock_text, read_lock
from kvplan.guard.lock_update import every_record

BASE = "model: llama-3.1-8b\ngpu: h100\nmemory: {free_before_gib: 78.5, free_after_gib: 63.5}\n"
BUDGETS = {
    "dense.yaml": BASE,
    "draft.yaml": "model: llama-3.1-8b\ngpu: h200\nparallel: tp2\nspeculative: eagle3-llama-3.1-8b\n",
    "hybrid.yaml": "model: qwen3-next-80b-a3b\ngpu: h200\nparallel: tp4\nserver: {page_size: 64}\n",
    "sliding.yaml": "model: gpt-oss-20b\ngpu: h100\nserver: {cuda_graph_config: {decode: {max_bs: 64}}}\n",
    "compressed.yaml": "model: deepseek-v4-flash\ngpu: h200\nparallel: tp8\n",
    "refused.yaml": BASE + "server: {mem_fraction_static: 0.1}\nrequire: {starts: false}\n",
    "two.yaml": "budgets:\n  a: {model: qwen3-8b, gpu: l40s}\n  b: {model: qwen3-32b, gpu: h200}\n",
}


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    """A folder with budgets of every kind, and the current folder beside it."""
    folder = tmp_path / "budgets"
    folder.mkdir()
    for name, text in BUDGETS.items():
        (folder / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def locked(kvplan, tmp_path, monkeypatch):
    """Record one budget, rewrite it, and check it against the lock: (exit code, stdout)."""
    monkeypatch.chdir(tmp_path)

    def run(before: str, after: str):
        (tmp_path / "b.yaml").write_text(before)
        kvplan("check", "b.yaml", "--lock", "kvplan.lock.json", "--update")
        (tmp_path / "b.yaml").write_text(after)
        code, out, _ = kvplan("check", "b.yaml", "--lock", "kvplan.lock.json")
        return code, out

    return run


def test_a_lock_reads_back_to_the_same_plans(fleet, tmp_path):
    lock = tmp_path / "kvplan.lock.json"
    records = {each.name: each for each in every_record(check_files([fleet]), lock)}
    lock.write_text(lock_text(records))

    assert len(records) == 8
    assert read_lock(lock) == records
    assert lock_text(read_lock(lock)) == lock.read_text()


def test_update_then_check_holds(kvplan, fleet):
    code, out, _ = kvplan("check", fleet, "--lock", "kvplan.lock.json", "--update")

    assert code == 0
    assert "kvplan.lock.json: 8 plans, 8 changed" in out

    before = (fleet.parent / "kvplan.lock.json").read_bytes()
    code, out, _ = kvplan("check", fleet, "--lock", "kvplan.lock.json", "--json")
    found = [each["findings"][-1] for each in json.loads(out)["budgets"]]
    assert code == 0
    assert {(each["requirement"], each["text"]) for each in found} == {
        ("no_regress", "as recorded")
    }

    _, out, _ = kvplan("check", fleet, "--lock", "kvplan.lock.json", "--update", "--json")
    assert json.loads(out)["lock"]["changed"] == []
    assert (fleet.parent / "kvplan.lock.json").read_bytes() == before


def test_names_count_from_the_lock_file(kvplan, fleet, tmp_path, monkeypatch):
    kvplan("check", fleet / "dense.yaml", "--lock", tmp_path / "kvplan.lock.json", "--update")
    monkeypatch.chdir(fleet)

    code, _, _ = kvplan("check", "dense.yaml", "--lock", "../kvplan.lock.json")

    assert code == 0
    assert list(read_lock(tmp_path / "kvplan.lock.json")) == ["budgets/dense.yaml"]


MOVED = {
    "an argument": ("server: {mem_fraction_static: 0.8}\n", "mem_fraction_static 0.835 (engine default) → 0.8 (alone −22,508)"),
    "the graphs' batch": ("server: {cuda_graph_max_bs_decode: 4096}\n", "cuda_graph_max_bs_decode - → 4096 (alone "),
    "requests": ("server: {max_running_requests: 100}\n", "running requests: 2,048 recorded, 100 now (−95.1%, −2% allowed)"),
}  # fmt: skip


@pytest.mark.parametrize("case", MOVED)
def test_a_regression_names_the_input_that_moved_it(locked, case):
    change, words = MOVED[case]

    code, out = locked(BASE, BASE + change)

    assert code == 1
    assert words in out
    assert "agree to the new plan with --update" in out


def test_measured_memory_and_the_card_are_inputs_too(locked):
    code, out = locked(BASE, BASE.replace("63.5", "60.25").replace("h100", "h100-nvl"))

    assert code == 1
    assert "moved by memory.free_after_gib 63.5 → 60.25 (alone −26,624)" in out


def test_the_largest_effect_comes_first(locked):
    code, out = locked(BASE, BASE + "server: {page_size: 4096, mem_fraction_static: 0.7}\n")

    assert code == 1
    assert out.index("mem_fraction_static 0.835") < out.index("page_size 1 (engine default) → 4096")


def test_arguments_of_one_feature_move_together(locked):
    draft = "speculative: eagle3-llama-3.1-8b\n"

    code, out = locked(BASE, BASE + draft)

    assert code == 1
    assert "moved by draft - → draft-eagle3-llama3.1-instruct-8b and 4 more (alone −" in out


def test_changes_that_only_work_together_are_named_so(locked):
    tree = "draft: draft-eagle3-llama3.1-instruct-8b\nserver: {speculative_algorithm: EAGLE3, max_running_requests: 48}\n"
    plain = "server: {max_running_requests: 48}\n"

    code, out = locked(BASE + plain, BASE + tree)

    assert code == 1
    assert "moved by draft - → draft-eagle3-llama3.1-instruct-8b and 1 more (alone −" in out


@pytest.mark.parametrize(
    ("tolerance", "code"), [("2%", 0), ("1.5%", 0), ("0.5%", 1), ("0%", 1), ("0 %", 1)]
)
def test_no_regress_is_the_tolerance(locked, tolerance, code):
    text = BASE + f"no_regress: {tolerance}\n"

    assert locked(text, text + "server: {mem_fraction_static: 0.828}\n")[0] == code


def test_a_gain_holds_and_is_told(locked):
    code, out = locked(BASE, BASE + "server: {mem_fraction_static: 0.9}\n")

    assert code == 0
    assert "within the lock: tokens of KV +10.1%" in out


def test_a_launch_that_no_longer_starts_has_lost_everything(locked):
    code, out = locked(BASE, BASE + "server: {mem_fraction_static: 0.1}\n")

    assert code == 1
    assert "tokens of KV: 414,085 recorded, 0 now (gone, −2% allowed)" in out
    assert "does not start: " in out


def test_a_budget_that_is_not_recorded_is_broken(kvplan, fleet):
    kvplan("check", fleet / "dense.yaml", "--lock", "kvplan.lock.json", "--update")

    code, out, _ = kvplan("check", fleet / "two.yaml", "--lock", "kvplan.lock.json")

    assert code == 1
    assert out.count("not recorded in kvplan.lock.json") == 2
    assert "record it with --update" in out


def test_an_update_keeps_other_plans_and_drops_those_whose_budget_is_gone(kvplan, fleet, tmp_path):
    kvplan("check", fleet, "--lock", "kvplan.lock.json", "--update")
    (fleet / "hybrid.yaml").unlink()
    (fleet / "dense.yaml").write_text(BASE + "server: {page_size: 16}\n")

    _, out, _ = kvplan(
        "check", fleet / "dense.yaml", "--lock", "kvplan.lock.json", "--update", "--json"
    )

    assert json.loads(out)["lock"]["changed"] == ["budgets/dense.yaml", "budgets/hybrid.yaml"]
    assert "budgets/two.yaml#a" in read_lock(tmp_path / "kvplan.lock.json")
    assert "budgets/hybrid.yaml" not in read_lock(tmp_path / "kvplan.lock.json")


def test_a_bad_budget_leaves_the_lock_as_it_is(kvplan, fleet, tmp_path):
    kvplan("check", fleet, "--lock", "kvplan.lock.json", "--update")
    before = (tmp_path / "kvplan.lock.json").read_bytes()
    (fleet / "dense.yaml").write_text("gpu: h100\n")

    code, out, _ = kvplan("check", fleet, "--lock", "kvplan.lock.json", "--update")

    assert code == 2
    assert (
        "kvplan.lock.json is left as it is: 'budgets/dense.yaml' could not be read"
        in out.replace(str(tmp_path) + "/", "")
    )
    assert (tmp_path / "kvplan.lock.json").read_bytes() == before
    assert not list(tmp_path.glob(".*.part"))


def test_rules_of_kvplan_that_changed_are_named(kvplan, fleet, tmp_path):
    lock = tmp_path / "kvplan.lock.json"
    kvplan("check", fleet / "dense.yaml", "--lock", lock, "--update")
    text = (
        lock.read_text()
        .replace('"kvplan": "', '"kvplan": "0.0.')
        .replace('"tokens": 414085', '"tokens": 500000')
    )
    lock.write_text(text.replace('"value": 0.835', '"value": 0.9'))

    code, out, _ = kvplan("check", fleet / "dense.yaml", "--lock", lock)

    assert code == 1
    assert (
        "tokens of KV: 500,000 recorded, 414,085 now (−17.2%, −2% allowed); moved by kvplan 0.0."
        in out
    )
    assert "mem_fraction_static 0.9 → 0.835 (engine default (mem-fraction): " in out


def test_a_plan_of_another_version_is_compared_without_its_launch(kvplan, fleet, tmp_path):
    lock = tmp_path / "kvplan.lock.json"
    kvplan("check", fleet, "--lock", lock, "--update")
    text = lock.read_text().replace('"hidden_size": 4096', '"hidden_width": 4096')
    lock.write_text(text.replace('"tokens": 414085', '"tokens": 500000'))

    code, out, _ = kvplan("check", fleet / "dense.yaml", "--lock", lock)
    assert code == 1
    assert "tokens of KV: 500,000 recorded" in out

    code, _, err = kvplan("check", fleet / "hybrid.yaml", "--lock", lock, "--update")
    assert code == 2
    assert "in a form that is no longer read" in err


REFUSED = {
    "not there": (None, "cannot read: no such file"),
    "no JSON": ("{", "not JSON"),
    "another file": ('{"schema": "kvplan.size/1"}', "unknown value 'kvplan.size/1' of 'schema'"),
    "a part": ('{"schema": "kvplan.lock/1", "engine": "x", "models": {}, "gpus": {}}', "missing field 'plans'"),
    "a lost table": (
        '{"schema": "kvplan.lock/1", "engine": "x", "models": {}, "gpus": {}, "plans": {"a": {"kvplan": "0", '
        '"figures": {}, "launch": {"model": "m", "gpu": "g"}, "resolved": {}}}}',
        "'m' is in no table of this file",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_is_no_lock_is_refused(kvplan, fleet, tmp_path, case):
    text, words = REFUSED[case]
    if text is not None:
        (tmp_path / "kvplan.lock.json").write_text(text)

    code, out, err = kvplan("check", fleet, "--lock", "kvplan.lock.json")

    assert (code, out) == (2, "")
    assert err.startswith("error: kvplan.lock.json")
    assert words in err


def test_update_needs_a_lock_file_and_a_json_name(kvplan, fleet):
    assert "--update needs a lock file" in kvplan("check", fleet, "--update")[2]
    code, _, err = kvplan("check", fleet, "--lock", "plans.txt", "--update")

    assert code == 2
    assert "no form is written for 'plans.txt'" in err


def test_models_that_share_a_name_have_entries_of_their_own(kvplan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = msgspec.to_builtins(load_model("llama-3.1-8b"))
    for number, layers in enumerate((32, 31, 32)):
        folder = tmp_path / f"budgets/{number}"
        folder.mkdir(parents=True)
        (tmp_path / f"model-{number}.yaml").write_text(json.dumps(model | {"num_layers": layers}))
        (folder / "b.yaml").write_text(f"model: ../../model-{number}.yaml\ngpu: h100\n")

    code, out, _ = kvplan("check", "budgets", "--lock", "kvplan.lock.json", "--update")

    lock = json.loads((tmp_path / "kvplan.lock.json").read_text())
    assert code == 0, out
    assert list(lock["models"]) == ["llama-3.1-8b", "llama-3.1-8b (2)"]
    assert [plan["launch"]["model"][12:] for plan in lock["plans"].values()] == ["", " (2)", ""]
