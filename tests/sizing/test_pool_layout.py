"""The layout without torch: the same tensors, for the same layers, as the pools that torch builds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Any

import pytest

from kvplan.errors import PoolError
from kvplan.planner import PlanInputs, plan, read_inputs
from kvplan.pools.build import Pools, build
from kvplan.sizing.allocator_tensors import ALLOCATOR
from kvplan.sizing.ledger import ledger
from kvplan.sizing.plan import Plan
from kvplan.sizing.pool_layout import LaidTensor, spans, stage_layout, totals
from tests.pools.recorded import recorded_plans

EVERY = 5  # of the recorded launches; all of them are built where the pools are tested


def laid_tensors(laid: Iterable[LaidTensor]) -> Counter[tuple[Any, ...]]:
    """Every tensor by pool, name, layers, shape, dtype and stride."""
    return Counter(
        (
            each.tensor.pool,
            each.tensor.name,
            layers,
            each.tensor.shape,
            each.tensor.dtype,
            each.stride,
            each.tensor.view_stride is not None,
        )
        for each in laid
        if each.tensor.pool != ALLOCATOR
        for layers in each.layers_of_copies
    )


def built_tensors(pools: Pools) -> Counter[tuple[Any, ...]]:
    return Counter(
        (
            pool,
            entry.name,
            () if pool == "rows" else entry.layers,
            tuple(entry.tensor.shape),
            str(entry.tensor.dtype).removeprefix("torch."),
            tuple(entry.tensor.stride()),
            entry.is_view,
        )
        for pool, entries in pools.parts().items()
        for entry in entries
    )


def test_the_layout_is_what_the_pools_are_built_of(shared):
    different, compared = [], 0
    for name, recorded in islice(recorded_plans(shared / "golden"), 0, None, EVERY):
        try:
            built = built_tensors(build(recorded, "meta"))
        except PoolError:
            continue  # sized, and refused by the engine's own pool
        compared += 1
        if laid_tensors(stage_layout(recorded, recorded.stages[0])) != built:
            different.append(name)

    assert different == []
    assert compared > 250


def test_every_total_is_the_ledgers(shared):
    for name, recorded in islice(recorded_plans(shared / "golden"), 0, None, EVERY):
        for stage in recorded.stages:
            summed = totals(stage_layout(recorded, stage), ledger(recorded, stage))
            assert all(each.num_bytes == each.ledger_bytes for each in summed), name
            assert {"KV", "full KV", "sliding KV"} & {each.name for each in summed}


def planned(**inputs: Any) -> Plan:
    outcome = plan(read_inputs(PlanInputs(**inputs))).outcome
    assert isinstance(outcome, Plan)
    return outcome


def test_tensors_by_hand():
    llama = planned(
        model="llama-3.1-8b", gpu="h100", server={"max_total_tokens": 1024, "page_size": 16}
    )

    laid = {each.tensor.name: each for each in stage_layout(llama, llama.stages[0])}

    assert laid["k"].tensor.shape == (1040, 8, 128)
    assert laid["k"].stride == (1024, 128, 1)
    assert laid["k"].layers == tuple(range(32))
    assert laid["k"].tensor.num_bytes == 32 * 1040 * 8 * 128 * 2
    assert laid["free_pages"].tensor.shape == (64,)


@pytest.mark.parametrize(
    ("layers", "words"),
    [((), ""), ((3,), "3"), ((0, 1, 2, 5, 7, 8), "0–2, 5, 7–8"), (tuple(range(0, 8, 2)), "0, 2, 4, 6")],
)  # fmt: skip
def test_layers_in_words(layers: tuple[int, ...], words: str):
    assert spans(layers) == words
