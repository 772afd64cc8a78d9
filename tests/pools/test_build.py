"""Pools built from plans: against the engine's own tensors, the ledger, and for real."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
import torch

from kvplan.conformance import plan_case
from kvplan.conformance_tensors import tensors
from kvplan.errors import DeviceError, InputError, PoolError
from kvplan.pools.base import KvPool
from kvplan.pools.build import Pools, build
from kvplan.pools.marks import mark, unmark
from kvplan.pools.write_loc import KVWriteLoc
from kvplan.sizing.plan import Plan, plan_launch
from tests.pools.recorded import built_bytes, planned_bytes, recorded_cases, recorded_plans

MIB = 1 << 20
REFUSED = {
    "phi-3-mini-4k-instruct-lowbit-48"
}  # sized, but nvfp4 has no native scales for its heads


def counted(listed: Iterable[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(
        {
            key: sum(each["count"] for each in listed if signature(each) == key)
            for key in map(signature, listed)
        }
    )


def signature(listed: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(listed["shape"]), listed["dtype"], tuple(listed["stride"]), listed["view"]


def test_every_tensor_is_the_engines_own(shared):
    """Shape, dtype, stride and view, counted over all pools of each record."""
    cases = recorded_cases(shared / "golden")
    lines = (shared / "golden/pools.jsonl").read_text().splitlines()
    different = {}
    for record in map(json.loads, lines):
        built, engine = counted(tensors(cases[record["id"]])), counted(record["tensors"])
        if built != engine:
            different[record["id"]] = engine - built, built - engine

    assert len(lines) == 497
    assert different == {}


def test_every_pool_takes_the_ledgers_bytes(shared):
    """At full size, for every recorded launch: all families, tp, pp and dcp widths."""
    different = {}
    widths = set()
    for name, plan in recorded_plans(shared / "golden"):
        if name in REFUSED:
            continue
        built = built_bytes(build(plan, "meta"))
        if built != planned_bytes(plan):
            different[name] = built, planned_bytes(plan)
        each = plan.resolved.widths
        widths.add((each.tp > 1, each.pp > 1, each.attn_dcp > 1))

    assert different == {}
    assert {(True, True, False), (True, False, True), (False, True, False)} <= widths


def family(plan: Plan) -> tuple[Any, ...]:
    """What makes pools of different kinds."""
    model = plan.stages[0].stage.model
    return (
        type(model.attention).__name__,
        plan.resolved.kv_recipe,
        model.sliding is not None,
        model.indexer is not None and (plan.resolved.kv_cache_dtype, plan.resolved.dsa_raw_layout),
        model.linear and type(model.linear.state).__name__,
        model.compressed is not None,
        model.sparse is not None,
        plan.resolved.widths.attn_dcp > 1,
        plan.resolved.speculation.algorithm is not None,
    )


def smallest_of_each_family(plans: Iterable[tuple[str, Plan]]) -> dict[str, Plan]:
    """For each family the plan whose scaled pools are the smallest."""
    found: dict[tuple[Any, ...], tuple[int, str, Plan]] = {}
    for name, plan in plans:
        if name in REFUSED:
            continue
        size = build(plan, "meta", kv_scale=True).bytes()
        best = found.get(family(plan))
        if best is None or size < best[0]:
            found[family(plan)] = size, name, plan
    return {name: plan for size, name, plan in found.values() if size < 400 * MIB}


def test_scaled_pools_hold_what_they_are_planned_to_and_keep_what_is_written(shared):
    """On the CPU for real: one plan of each family."""
    plans = smallest_of_each_family(recorded_plans(shared / "golden"))

    for plan in plans.values():
        pools = build(plan, "cpu", kv_scale=True)
        assert built_bytes(pools) == planned_bytes(pools.plan)
        assert pools.rows.num_rows == plan.rows - 1
        assert pools.kv.size == capacity(plan)
        for layer_id in pools.kv.layer_ids:
            check_door(pools, layer_id)
    assert len(plans) >= 30


def capacity(plan: Plan) -> int:
    """Tokens at the door: those of all decode-context ranks, or of the full side."""
    pool, ranks = plan.stages[0].pool, plan.resolved.widths.attn_dcp
    two = pool.sliding or pool.compressed
    return (two.full_tokens if two else pool.tokens) * ranks


def check_door(pools: Pools, layer_id: int) -> None:
    """Marks at the first and the last pages come back."""
    pool = pools.kv
    sliding = getattr(pool, "sliding", getattr(pool, "window", None))
    size = min(pool.size, sliding.size) if isinstance(sliding, KvPool) else pool.size
    slots = torch.tensor([pool.page_size, pool.page_size + size - 1, pool.page_size + size // 2])
    slots = slots[: 1 if pools.plan.resolved.widths.attn_dcp > 1 else 3]
    numbers = torch.arange(len(slots)) + 3
    shapes = pool.row_shapes(layer_id)
    v = None if shapes.v is None else mark(numbers, shapes.v)
    pool.set_kv_buffer(layer_id, KVWriteLoc(slots, swa_loc=slots), mark(numbers, shapes.k), v)
    for side in pool.read(layer_id, slots):
        assert side is None or torch.equal(unmark(side), numbers)


@pytest.fixture(scope="module")
def llama(shared) -> Plan:
    """A dense launch over four pipeline stages."""
    plans = (
        plan
        for _, plan in recorded_plans(shared / "golden")
        if plan.resolved.widths.pp == 4 and plan.stages[0].pool.budget.state is None
    )
    alone = next(plans)
    planned = plan_launch(alone.model, alone.gpu, alone.resolved, alone.memory)
    assert isinstance(planned, Plan)
    return planned


def test_each_stage_builds_its_own_layers(llama):
    layers = [build(llama, pp_rank=rank).kv.layer_ids for rank in range(4)]

    assert sum(layers, ()) == tuple(range(llama.model.num_layers))
    assert len({build(llama, pp_rank=rank).kv.size for rank in range(4)}) == 1


def test_what_is_not_there_is_refused(llama):
    with pytest.raises(InputError, match="there is no pipeline stage 4") as refusal:
        build(llama, pp_rank=4)
    assert refusal.value.hint == "the plan has stages 0 to 3"
    with pytest.raises(DeviceError, match=r"cpu has .* GiB free, the pools take"):
        build(llama, "cpu")
    if not torch.cuda.is_available():
        with pytest.raises(DeviceError, match="CUDA was asked for"):
            build(llama, "cuda")


def test_heads_without_native_scales_are_refused_as_the_engine_does(shared):
    plan = plan_case(recorded_cases(shared / "golden")[next(iter(REFUSED))])
    assert plan is not None

    with pytest.raises(PoolError, match="native nvfp4 scales need a head_dim that 64"):
        build(plan)


@pytest.mark.gpu
def test_a_gpu_takes_exactly_the_planned_bytes(shared):
    plans = smallest_of_each_family(recorded_plans(shared / "golden"))
    for plan in plans.values():
        before = requested_bytes()
        pools = build(plan, "cuda", kv_scale=True)
        on_device = sum(
            entry.tensor.nbytes
            for entry in pools.tensors()
            if entry.tensor.is_cuda and not entry.is_view
        )
        assert requested_bytes() - before == on_device


def requested_bytes() -> int:
    """What live tensors asked the caching allocator for, without its rounding."""
    return int(torch.cuda.memory_stats()["requested_bytes.all.current"])
