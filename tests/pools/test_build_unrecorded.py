"""Pools of launches that no record covers: the tensors and bytes of their plan."""

from __future__ import annotations

import pytest
import torch

from kvplan.pools.allocation import allocate
from kvplan.pools.base import KvPool
from kvplan.pools.build import Pools, build
from kvplan.pools.build_host import host_tiers
from kvplan.pools.marks import mark, unmark
from kvplan.pools.write_loc import KVWriteLoc
from kvplan.sizing.ledger import ledger
from kvplan.sizing.pool_layout import stage_layout, totals
from tests.pools.launches import HISPARSE, LAUNCHES, UNIFIED, plan_of
from tests.pools.recorded import built_bytes, planned_bytes


@pytest.mark.parametrize("name", LAUNCHES)
def test_pools_at_full_size_take_the_ledgers_bytes(name):
    """Every stage, tensor by tensor: layers, shape, dtype, strides; and by pool."""
    plan = plan_of(name)

    assert built_bytes(build(plan, "meta")) == planned_bytes(plan)
    for pp_rank, planned in enumerate(plan.stages):
        allocation = allocate(plan, "meta", pp_rank=pp_rank)
        assert [each for each in allocation.tensors if each.difference] == []
        for total in totals(stage_layout(plan, planned), ledger(plan, planned)):
            assert total.num_bytes == total.ledger_bytes, total.name


@pytest.mark.parametrize("name", LAUNCHES)
def test_scaled_pools_take_what_they_are_planned_to(name):
    plan, capped = plan_of(name), plan_of(name, capped=True)

    for pp_rank in range(len(plan.stages)):
        for each, device in ((plan, "meta"), (capped, "cpu")):
            allocation = allocate(each, device, pp_rank=pp_rank, kv_scale=True)
            assert [each for each in allocation.tensors if each.difference] == []


@pytest.mark.parametrize("name", [name for name in LAUNCHES if name not in HISPARSE])
def test_what_is_written_at_the_door_is_read_again(name):
    """A token in every layer of the target and its draft, at a slot behind the padding."""
    pools = build(plan_of(name, capped=True), "cpu", kv_scale=True)

    write_and_read(pools, pools.kv, first_slots(pools))
    for draft in pools.drafts:
        write_and_read(pools, draft, KVWriteLoc(torch.tensor([0]), swa_loc=torch.tensor([0])))


def write_and_read(pools: Pools, pool: KvPool, loc: KVWriteLoc) -> None:
    """Marks in all layers, then all of them again: no layer lies over another."""
    numbers = {layer_id: torch.tensor([layer_id + 3]) for layer_id in pool.layer_ids}
    for layer_id, number in numbers.items():
        shapes = pool.row_shapes(layer_id)
        v = None if shapes.v is None else mark(number, shapes.v)
        pool.set_kv_buffer(layer_id, loc, mark(number, shapes.k), v)
    for layer_id, number in numbers.items():
        slots = loc.swa_loc if layer_id in pools.stage.stage.layers.sliding else loc.loc
        assert slots is not None
        for side in pool.read(layer_id, slots):
            assert side is None or torch.equal(unmark(side), number)


def first_slots(pools: Pools) -> KVWriteLoc:
    """A token on the first page that may be handed out, one of the first rank's."""
    shared = pools.shared
    if shared is None:
        slots = torch.tensor([pools.kv.page_size * pools.plan.resolved.kv_shards])
        return KVWriteLoc(slots, swa_loc=slots)
    virtual = shared.alloc(shared.page_size)
    assert virtual is not None
    sliding = None if shared.swa is None else shared.to_swa(virtual[:1])
    return KVWriteLoc(shared.to_full(virtual[:1]), swa_loc=sliding, physical=True)


@pytest.mark.parametrize("name", UNIFIED)
def test_pages_of_one_buffer_move_under_their_tokens(name):
    """The allocator that comes with the pools copies bytes when it closes a hole."""
    pools = build(plan_of(name, capped=True), "cpu", kv_scale=True)
    shared = pools.shared
    assert shared is not None
    first, second = (shared.alloc(shared.page_size) for _ in range(2))
    assert first is not None
    assert second is not None
    layer_id = next(layer for layer in pools.kv.layer_ids if layer in pools.stage.stage.layers.full)
    shapes, number = pools.kv.row_shapes(layer_id), torch.tensor([7])
    v = None if shapes.v is None else mark(number, shapes.v)
    before = shared.to_full(second[:1])
    pools.kv.set_kv_buffer(layer_id, KVWriteLoc(before, physical=True), mark(number, shapes.k), v)
    shared.free(first)

    assert shared.compact() > 0
    after = shared.to_full(second[:1])
    assert not torch.equal(before, after)
    assert unmark(pools.kv.read(layer_id, after)[0]).tolist() == [7]
    assert shared.verify_accounting() == []


@pytest.mark.parametrize("name", HISPARSE)
def test_the_host_side_of_a_swap_has_the_planned_size_and_bytes(name):
    plan = plan_of(name)

    (host,) = plan.stages[0].host
    (tier,) = host_tiers(build(plan, "meta")).values()
    assert (tier.size, tier.bytes()) == (host.size, host.num_bytes)
