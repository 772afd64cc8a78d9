"""Budgets with a workload: what its replay over counts finds decides."""

from __future__ import annotations

import json

import pytest

from kvplan.planner import PlanInputs, plan, read_inputs
from kvplan.replay.result import ReplayResult
from kvplan.replay.run import ReplayOptions, replay
from kvplan.replay.settings import Choices
from kvplan.replay.workloads.workload import open_workload
from kvplan.sizing.plan import Plan

WORKLOAD = """
seed: 4
requests: 200
arrivals: {process: poisson, requests_per_s: 20.0}
input: {distribution: uniform, min: 100, max: 900}
output: {distribution: uniform, min: 200, max: 1200}
"""
BASE = "model: llama-3.1-8b\ngpu: h100\nworkload: {file: w.yaml}\n"
ALL = "require: {no_retractions: true, no_rejections: true, max_occupancy: 0.9}\n"
FEW = "server: {max_total_tokens: 30000}\n"
FEWER = "server: {max_total_tokens: 800}\n"


@pytest.fixture
def checked(kvplan, tmp_path):
    """Check one budget beside a workload: (exit code, {requirement: finding} or the refusal)."""
    (tmp_path / "w.yaml").write_text(WORKLOAD)

    def run(text: str):
        (tmp_path / "budget.yaml").write_text(text)
        code, out, _ = kvplan("check", tmp_path / "budget.yaml", "--json")
        budget = json.loads(out)["budgets"][0]
        found = {each["requirement"]: each for each in budget["findings"]}
        return code, found or budget

    return run


@pytest.fixture
def result(tmp_path):
    """The replay itself of the workload on the same launch."""
    (tmp_path / "w.yaml").write_text(WORKLOAD)

    def run(choices: Choices | None = None, **server) -> ReplayResult:
        outcome = plan(
            read_inputs(PlanInputs(model="llama-3.1-8b", gpu="h100", server=server))
        ).outcome
        assert isinstance(outcome, Plan)
        options = ReplayOptions(choices=choices or Choices())
        return replay(outcome, open_workload(tmp_path / "w.yaml"), options)

    return run


def test_traffic_that_fits_holds(checked, result):
    code, found = checked(BASE + ALL)

    assert code == 0
    assert found["no_retractions"]["text"] == "no retractions in 200 requests"
    assert found["no_rejections"]["text"] == "no rejections in 200 requests"
    assert found["max_occupancy"]["have"] == pytest.approx(result().peak_occupancy)


def test_too_few_tokens_send_requests_back(checked, result):
    code, found = checked(BASE + FEW + ALL)
    same = result(max_total_tokens=30000)

    assert code == 1
    assert found["no_retractions"]["have"] == same.num_retractions > 0
    assert (
        f"{same.num_retractions} retractions in 200 requests, the first at 00:0"
        in found["no_retractions"]["text"]
    )
    assert found["max_occupancy"]["text"].startswith("occupancy of KV: ")
    assert not found["max_occupancy"]["held"]


def test_prompts_that_no_pool_holds_are_rejections(checked, result):
    code, found = checked(BASE + FEWER + "require: {no_rejections: true}\n")

    assert code == 1
    assert found["no_rejections"]["have"] == result(max_total_tokens=800).num_rejected > 0
    assert "(KV pool)" in found["no_rejections"]["text"]


def test_occupancy_holds_up_to_its_share(checked, result):
    peak = result(max_total_tokens=200000).peak_occupancy
    server = "server: {max_total_tokens: 200000}\n"

    assert 0.05 < peak < 0.95
    assert checked(BASE + server + f"require: {{max_occupancy: {peak + 0.001:.4f}}}\n")[0] == 0
    assert checked(BASE + server + f"require: {{max_occupancy: {peak - 0.001:.4f}}}\n")[0] == 1


def test_assumptions_are_the_budgets_own(checked):
    text = BASE.replace("w.yaml}", "w.yaml, max_new: context, tpot_ms: 80, requests: 100}")

    _, found = checked(text + FEW + ALL)

    assert (
        found["no_retractions"]["text"].endswith(" in 100 requests")
        or found["no_retractions"]["have"]
    )
    assert found["max_occupancy"]["have"] != checked(BASE + FEW + ALL)[1]["max_occupancy"]["have"]


def test_the_scheduler_is_that_of_the_written_launch(checked, result):
    line = "sglang serve --model-path m --max-total-tokens 30000 --schedule-conservativeness 0.1"
    text = BASE + f"launch: {line}\n" + ALL
    eager = result(Choices(conservativeness=0.1), max_total_tokens=30000)
    plain = result(max_total_tokens=30000)

    assert (
        checked(text)[1]["no_retractions"]["have"] == eager.num_retractions != plain.num_retractions
    )
    own = text.replace("w.yaml}", "w.yaml, schedule_conservativeness: 1}")
    assert checked(own)[1]["no_retractions"]["have"] == plain.num_retractions


def test_what_the_replay_leaves_out_of_the_schedule_is_said(kvplan, tmp_path):
    (tmp_path / "w.yaml").write_text(WORKLOAD)
    file = tmp_path / "budget.yaml"
    line = "sglang serve --model-path m --enable-priority-scheduling"
    line = f"launch: SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION=512 {line}\n"
    file.write_text(BASE + line + "require: {no_retractions: true}\n")

    said = kvplan("check", file)[1]

    assert "'enable_priority_scheduling' changes the schedule" in said
    assert "'SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION' changes the schedule" in said


HYBRID = """
model: qwen3-next-80b-a3b
gpu: h200
workload: {file: w.yaml, requests: 40}
server: {tp_size: 2, max_mamba_cache_size: 40, mamba_track_interval: INTERVAL}
require: {max_occupancy: 0.01}
"""


def test_the_fullest_pool_is_named_whatever_its_unit(checked):
    _, found = checked(HYBRID.replace("INTERVAL", "256"))

    assert found["max_occupancy"]["text"].startswith("occupancy of recurrent states: ")


def test_states_are_kept_as_often_as_the_launch_says(tmp_path):
    (tmp_path / "w.yaml").write_text(WORKLOAD)
    intervals = {}
    for interval in (64, 512):
        server = {"tp_size": 2, "mamba_track_interval": interval}
        inputs = PlanInputs(model="qwen3-next-80b-a3b", gpu="h200", server=server)
        outcome = plan(read_inputs(inputs)).outcome
        assert isinstance(outcome, Plan)
        intervals[interval] = replay(outcome, open_workload(tmp_path / "w.yaml")).server.states

    assert [pool.interval for pool in intervals.values() if pool is not None] == [64, 512]


def test_drafts_bring_as_many_tokens_as_the_budget_assumes(checked):
    text = BASE + "speculative: eagle3-llama-3.1-8b\nserver: {max_total_tokens: 60000}\n" + ALL
    accepts = {
        length: checked(text.replace("w.yaml}", f"w.yaml, accept_len: {length}}}"))[1]
        for length in (1, 3)
    }

    assert accepts[1]["max_occupancy"]["have"] > accepts[3]["max_occupancy"]["have"]
    code, budget = checked(BASE.replace("w.yaml}", "w.yaml, accept_len: 3}") + ALL)
    assert code == 2
    assert budget["error"]["problem"] == "an acceptance without drafts"


def test_a_launch_that_does_not_start_replays_nothing(checked):
    code, found = checked(BASE + "server: {mem_fraction_static: 0.1}\n" + ALL)

    assert code == 1
    assert list(found) == ["starts"]


REFUSED = {
    "a pool of no page": (
        "model: deepseek-v4-flash\ngpu: t4\nparallel: tp8-dcp8\nmemory: {weights_gib: 7.5}\nworkload: w.yaml\n",
        "the sliding pool of 512 tokens holds no page of 2,048",
        "budget.yaml:5:11",
    ),
    "no such file": (BASE.replace("w.yaml", "gone.csv"), "no such file", "gone.csv"),
    "no such name": (BASE.replace("w.yaml", "chatt"), "no workload 'chatt'", "budget.yaml:3:18"),
    "no workload": (BASE.replace("w.yaml", "budget.yaml"), "", "budget.yaml"),
    "a wrong format": (BASE.replace("w.yaml", "w.yaml, format: azure"), "", "w.yaml"),
    "an option of others": (BASE.replace("w.yaml", "w.yaml, block_size: 4"), "--block-size has no meaning", "w.yaml"),
    "an unknown option": (BASE.replace("w.yaml", "w.yaml, tpot: 4"), "unknown field 'tpot'", "budget.yaml:3:"),
    "an unknown policy": (
        BASE + "launch: sglang serve --model-path m --schedule-policy lof\n",
        "the replay does not model the schedule policy 'lof'",
        "budget.yaml:3:",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_workload_that_cannot_be_replayed_makes_the_budget_unreadable(checked, case):
    text, problem, place = REFUSED[case]

    code, budget = checked(text + ALL)

    assert code == 2
    assert problem in budget["error"]["problem"]
    assert (
        place in f"{budget['place']['file']}:{budget['place']['line']}:{budget['place']['column']}"
    )


def test_a_workload_needs_a_requirement_and_the_other_way_round(checked):
    code, budget = checked(BASE)
    assert (code, budget["error"]["hint"]) == (2, "add 'no_retractions: true' to 'require'")

    code, budget = checked(BASE.replace("workload: {file: w.yaml}\n", "") + ALL)
    assert (code, budget["error"]["problem"]) == (2, "'no_retractions' needs a workload")


def test_a_shipped_workload_goes_by_its_name(checked):
    code, found = checked(BASE.replace("{file: w.yaml}", "chat") + ALL)

    assert code == 0
    assert found["no_rejections"]["text"] == "no rejections in 1,000 requests"


def test_a_recorded_trace_is_replayed(kvplan, tmp_path, shared):
    trace = shared / "facts/traces/azure2023_conv.csv"
    (tmp_path / "budget.yaml").write_text(BASE.replace("w.yaml", str(trace)) + ALL)

    code, out, _ = kvplan("check", tmp_path / "budget.yaml")

    assert code == 0
    assert "no retractions in 19,366 requests" in out
