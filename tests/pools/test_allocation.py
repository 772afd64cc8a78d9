"""Built pools against a plan: equal to their own, and every way that another one differs."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.planner import PlanInputs, plan, read_inputs
from kvplan.pools.allocation import Allocation, CudaBytes, allocate, compare
from kvplan.pools.build import build
from kvplan.report.inspect import Subject, inspect_report
from kvplan.sizing.plan import Plan
from kvplan.sizing.pool_layout import stage_layout

KINDS = [("llama-3.1-8b", 16), ("gpt-oss-20b", 16), ("deepseek-v2-lite", 16), ("lfm2-1.2b", 1)]


def planned(model: str, **server: Any) -> Plan:
    defaults = {"max_total_tokens": 4096, "page_size": 16, "context_length": 2048}
    inputs = PlanInputs(
        model=model, gpu="h100", server=defaults | {"max_running_requests": 4} | server
    )
    outcome = plan(read_inputs(inputs)).outcome
    assert isinstance(outcome, Plan)
    return outcome


def differences(laid: Plan, built: Plan) -> dict[str, str]:
    """Names of the tensors of one plan that another plan's pools do not have."""
    compared = compare(stage_layout(laid, laid.stages[0]), build(built, "meta"))
    return {f"{each.pool}.{each.name}": each.difference for each in compared if each.difference}


@pytest.mark.parametrize(("model", "page_size"), KINDS)
def test_pools_are_what_their_plan_says(model: str, page_size: int):
    outcome = planned(model, page_size=page_size)

    for kv_scale in (False, True):
        done = allocate(outcome, "cpu" if kv_scale else "meta", kv_scale=kv_scale)
        assert done.as_planned
        assert sum(each.built_bytes for each in done.tensors) > 0


def test_the_strides_of_empty_tensors_mean_nothing():
    """Lightning attention has no conv windows: its snapshots of them are views of nothing."""
    server = {"tp_size": 8, "speculative_algorithm": "NEXTN"}
    outcome = plan(read_inputs(PlanInputs(model="ling-2.6-1t", gpu="b200", server=server))).outcome
    assert isinstance(outcome, Plan)

    assert allocate(outcome, "meta").as_planned


def test_a_pool_of_another_size_differs():
    found = differences(planned("llama-3.1-8b"), planned("llama-3.1-8b", max_total_tokens=4112))

    assert found == {
        f"kv.{name}": "planned (4112, 8, 128) bfloat16 of strides (1024, 128, 1) for layer 0,"
        " built (4128, 8, 128) bfloat16 of strides (1024, 128, 1) for layer 0"
        for name in ("k", "v")
    }


def test_other_dtypes_rows_and_kinds_differ():
    llama = planned("llama-3.1-8b")

    assert set(differences(llama, planned("llama-3.1-8b", kv_cache_dtype="fp8_e4m3"))) == {
        "kv.k",
        "kv.v",
    }
    assert set(differences(llama, planned("llama-3.1-8b", max_running_requests=5))) == {
        "rows.req_to_token",
        "rows.req_generation",
    }
    assert set(differences(llama, planned("deepseek-v2-lite"))) >= {"kv.k", "kv.v", "kv.latent"}


def test_a_difference_is_an_answer_that_says_no():
    llama, larger = planned("llama-3.1-8b"), planned("llama-3.1-8b", max_total_tokens=4112)
    compared = compare(stage_layout(llama, llama.stages[0]), build(larger, "meta"))
    allocation = Allocation("meta", False, compared, None)

    report = inspect_report(Subject(plan=llama, allocations=[allocation]))

    assert not report["verdict"]["sound"]
    assert report["verdict"]["text"].startswith("not as planned: 2 kinds of tensors differ")


def test_the_allocators_count_is_part_of_the_answer():
    llama = planned("llama-3.1-8b")
    compared = compare(stage_layout(llama, llama.stages[0]), build(llama, "meta"))
    short = CudaBytes(planned=4096, requested=4095, allocated=4096, reserved=2 << 20)

    report = inspect_report(
        Subject(plan=llama, allocations=[Allocation("cuda:0", False, compared, short)])
    )

    assert not report["verdict"]["sound"]
    assert "the CUDA allocator was asked for other bytes" in report["verdict"]["text"]


@pytest.mark.gpu
@pytest.mark.parametrize(("model", "page_size"), KINDS)
def test_a_gpu_is_asked_for_exactly_the_planned_bytes(model: str, page_size: int):
    done = allocate(planned(model, page_size=page_size), "cuda")

    assert done.as_planned
    assert done.cuda is not None
    assert done.cuda.planned == done.cuda.requested <= done.cuda.allocated <= done.cuda.reserved
