"""Public start-up logs: the sizes that real servers printed follow from their tokens, and the tokens from their memory."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.guard.log_figures import Figures, draft_figures, target_figures
from kvplan.planner import Launch, plan
from kvplan.sizing.memory import MemoryInputs
from kvplan.sizing.plan import Plan
from kvplan.units import GIB
from tests.public_logs import CASES, READ_AGAIN_GIB, launch, records

pytestmark = pytest.mark.usefixtures("shared")

AMPLE_GIB = 1 << 15
# figure of the plan -> key of the record, printed with two digits
PRINTED = {
    "k_gib": "k_size_gb",
    "v_gib": "v_size_gb",
    "kv_gib": "kv_size_gb",
    "full_k_gib": "full_k_size_gb",
    "full_v_gib": "full_v_size_gb",
    "swa_k_gib": "swa_k_size_gb",
    "swa_v_gib": "swa_v_size_gb",
    "swa_pool_gib": "swakvpool_gb",
    "conv_state_gib": "conv_state_gb",
    "ssm_state_gib": "ssm_state_gb",
}


def planned(made: Launch) -> Plan:
    outcome = plan(made).outcome
    assert isinstance(outcome, Plan), outcome
    return outcome


def tokens_of(record: dict[str, Any]) -> int:
    observed = record["observed"]
    names = ("num_tokens", "full_layer_tokens", "max_total_num_tokens")
    return next(int(observed[name]) for name in names if observed.get(name))


def at_printed_tokens(record: dict[str, Any]) -> Plan:
    """The plan whose pools hold what the record says, whatever the memory."""
    memory = MemoryInputs(free_before_gib=AMPLE_GIB, free_after_gib=AMPLE_GIB)
    observed, changes = record["observed"], {}
    if "max_mamba_cache_size" in observed:
        changes["max_mamba_cache_size"] = observed["max_mamba_cache_size"]
    return planned(launch(record, memory, max_total_tokens=tokens_of(record), **changes))


def memory_bounds(record: dict[str, Any]) -> tuple[MemoryInputs, MemoryInputs]:
    """The least and the most that the printed figures allow for the pools."""
    observed = record["observed"]
    after = observed.get("avail_mem_after_load_gb_min_rank", observed["avail_mem_after_load_gb"])
    before, half = observed.get("avail_mem_before_load_gb"), 0.005
    before_half = half
    if before is None:
        before = observed["avail_mem_after_load_gb"] + observed["weight_usage_gb"]
        before_half = 2 * half
    return (
        MemoryInputs(free_before_gib=before + before_half, free_after_gib=after - half),
        MemoryInputs(free_before_gib=before - before_half, free_after_gib=after + half),
    )


def test_every_record_that_is_meant_as_a_test_is_one():
    assert sorted(records()) == sorted(CASES)
    assert len(CASES) == 33


@pytest.mark.parametrize("name", CASES)
def test_sizes_follow_from_the_tokens_to_the_printed_digit(name):
    record = records()[name]
    observed, made = record["observed"], at_printed_tokens(record)
    figures = target_figures(made, made.stages[0])
    expected = {
        figure: f"{observed[key]:.2f}" for figure, key in PRINTED.items() if key in observed
    }

    assert made.tokens == tokens_of(record)
    assert expected
    assert {figure: f"{figures[figure]:.2f}" for figure in expected} == expected
    check_bytes_per_token(record, made, figures)


def check_bytes_per_token(record: dict[str, Any], made: Plan, figures: Figures) -> None:
    """The cell is the record's where it states one, and a sliding pool follows the full one."""
    stated = record["consistency"].get("expected_bytes_per_token")
    terms = [term for term in made.stages[0].pool.cell.terms if not term.name.startswith("draft")]
    if stated is not None:
        assert sum(term.num_bytes for term in terms) == stated
    if "swa_layer_tokens" in record["observed"]:
        assert figures["swa_layer_tokens"] == record["observed"]["swa_layer_tokens"]


@pytest.mark.parametrize(
    "name", [name for name, each in records().items() if each["replay"] == "budget+tokens"]
)
def test_tokens_follow_from_the_measured_memory(name):
    record = records()[name]
    least, most = (planned(launch(record, memory)) for memory in memory_bounds(record))
    missing = int(CASES[name].below_gib * GIB // least.stages[0].pool.cell.num_bytes)

    assert least.tokens - missing <= tokens_of(record) <= most.tokens


def test_only_records_that_need_it_may_stay_below_their_memory():
    for name, case in CASES.items():
        if case.below_gib:
            least = planned(launch(records()[name], memory_bounds(records()[name])[0]))
            assert tokens_of(records()[name]) < least.tokens
            assert case.below_gib <= READ_AGAIN_GIB
            assert case.reason


def test_the_draft_pool_of_a_dflash_launch():
    record = records()["sgl-204"]
    made = at_printed_tokens(record)

    printed = f"{record['observed']['draft_kv_size_gb']:.2f}"
    assert f"{draft_figures(made, made.stages[0])['k_gib']:.2f}" == printed


@pytest.mark.parametrize("name", ["sgl-160", "sgl-161"])
def test_a_host_pool_follows_from_its_size(name):
    record = records()[name]
    made = at_printed_tokens(record)

    figures = target_figures(made, made.stages[0])
    assert figures["host_tokens"] == record["observed"]["hicache_host_tokens"]


def test_state_slots_follow_from_the_ratio():
    record = records()["sgl-043"]
    least, most = (planned(launch(record, memory)) for memory in memory_bounds(record))
    observed = record["observed"]

    slots = [target_figures(each, each.stages[0])["max_mamba_cache_size"] for each in (least, most)]
    assert slots[0] <= observed["max_mamba_cache_size"] <= slots[1]
    assert least.max_running_requests <= observed["max_running_requests"]
    assert observed["max_running_requests"] <= most.max_running_requests
