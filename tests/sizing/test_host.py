"""The host tier against the machine's free memory, and a decode node's pool for retracted requests."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.planner import PlanInputs, plan, read_inputs
from kvplan.report.host import backup_report, host_notes, host_report
from kvplan.sizing.diagnosis import cures
from kvplan.sizing.host import HOST_RESERVE_BYTES, device_bytes_of, free_for_ratio, rank_bytes
from kvplan.sizing.memory import MemoryInputs
from kvplan.sizing.plan import NoStart, Plan
from kvplan.units import GIB

MODELS: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": {},
    "gpt-oss-20b": {"tp_size": 2},
    "deepseek-v3.2": {"tp_size": 16},
    "qwen3-next-80b-a3b": {"tp_size": 4},
    "qwen3-8b": {"speculative_algorithm": "EAGLE3", "pp_size": 1},
    "nemotron-h-8b-base-8k": {"pp_size": 4},
}


def outcome(model: str, free_gib: float | None = None, **server: Any) -> Plan | NoStart:
    inputs = PlanInputs(
        model=model,
        gpu="h200",
        server={"enable_hierarchical_cache": True, **MODELS.get(model, {}), **server},
        memory=MemoryInputs(host_free_gib=free_gib),
    )
    return plan(read_inputs(inputs)).outcome


def started(model: str, free_gib: float | None = None, **server: Any) -> Plan:
    found = outcome(model, free_gib, **server)
    assert isinstance(found, Plan), found.shortage.problem
    return found


def need_of(found: Plan) -> int:
    """Host bytes of the machine's ranks."""
    needs = [rank_bytes(stage.stage, stage.host) or 0 for stage in found.stages]
    return max(needs) * found.resolved.hicache.ranks_per_host


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("given", [{"hicache_size": 40}, {"hicache_ratio": 1.5}])
def test_a_tier_that_was_asked_for_fits_or_is_refused_with_both_figures(model, given):
    need = need_of(started(model, **given))
    enough = (HOST_RESERVE_BYTES + need) / GIB

    assert isinstance(outcome(model, enough + 0.001, **given), Plan)
    refused = outcome(model, enough - 0.001, **given)
    assert isinstance(refused, NoStart)
    shortage = refused.shortage
    assert shortage.what == "host memory"
    assert shortage.need_bytes is not None
    assert shortage.have_bytes < shortage.need_bytes
    assert f"{shortage.need_bytes / 1e9:.2f} GB" in shortage.problem
    assert f"{shortage.have_bytes / 1e9:.2f} GB" in shortage.problem
    (cure,) = cures(refused)
    (field,) = given
    value = float(cure.value) if field == "hicache_ratio" else int(cure.value)
    assert cure.flag == f"--{field.replace('_', '-')}"
    assert isinstance(outcome(model, enough - 0.001, **{field: value}), Plan)


@pytest.mark.parametrize("model", MODELS)
def test_a_tier_nobody_sized_shrinks_to_the_machine(model):
    whole = started(model)
    stage = min(whole.stages, key=lambda each: each.pool.profiled_tokens)
    free = max(
        free_for_ratio(whole.resolved.hicache, device_bytes_of(each.stage, each.pool))
        for each in whole.stages
    )
    enough, short = started(model, free / GIB), started(model, free / GIB - 2)

    assert host_report(enough, enough.stages[stage.stage.pp_rank]) == host_report(whole, stage)
    smaller = host_report(short, short.stages[stage.stage.pp_rank])
    assert all(
        less["size"] < more["size"] or not more["bytes"]
        for less, more in zip(smaller, host_report(whole, stage), strict=True)
    )
    assert need_of(short) <= free - HOST_RESERVE_BYTES
    assert f"{free / GIB:.1f} GiB of host memory free" in host_notes(whole)[0][0]
    assert host_notes(enough) == ((), ())


@pytest.mark.parametrize("free_gib", [0, 5, 10])
def test_a_machine_without_memory_beyond_the_reserve_serves_no_tier(free_gib):
    refused = outcome("llama-3.1-8b", free_gib)

    assert isinstance(refused, NoStart)
    assert f"{free_gib:.2f} GiB are free" in refused.shortage.problem
    assert cures(refused) == ()


def test_stages_share_the_least_slots_of_a_given_size():
    found = started("qwen3-8b", speculative_algorithm=None, pp_size=5, hicache_size=10)
    sizes = {stage.host[0].size for stage in found.stages}

    assert len(sizes) > 1
    for stage in found.stages:
        assert host_report(found, stage)[0]["size"] == min(sizes)


@pytest.mark.parametrize(
    ("model", "server", "slots"),
    [
        # a fifth of the device pool, in whole pages and one more
        ("llama-3.1-8b", {"context_length": 1000, "page_size": 16}, "fifth"),
        # one request of the row's width
        ("llama-3.1-8b", {"max_total_tokens": 5000}, "one request"),
        ("llama-3.1-8b", {"hicache_size": 10}, "given"),
        ("deepseek-v3.2", {}, None),
        ("qwen3-next-80b-a3b", {}, None),
        ("llama-3.1-8b", {"disaggregation_decode_retraction_backup": "cpu_tensor"}, None),
        ("llama-3.1-8b", {"disaggregation_decode_enable_radix_cache": True}, None),
        ("llama-3.1-8b", {"disaggregation_mode": "prefill"}, None),
    ],
)
def test_a_decode_node_keeps_retracted_requests_on_the_host(model, server, slots):
    node = {"disaggregation_mode": "decode", "enable_hierarchical_cache": False, **server}
    found = started(model, **node)
    stage, page = found.stages[0], found.resolved.page_size
    pools = backup_report(found, stage)
    expected = {
        "fifth": found.tokens // 5 // page * page + page,
        "one request": min(found.reserves.row_width - 1, found.tokens) + 1,
        "given": int(10e9 // 131072) + 1,
        None: None,
    }[slots]

    assert not found.stages[0].host
    assert (pools[0]["size"] if pools else None) == expected
