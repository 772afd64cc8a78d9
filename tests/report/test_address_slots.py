"""Addresses of two tokens of any launch: inside their tensors, and no byte is both's."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cache
from itertools import pairwise, product
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.planner import PlanInputs, read_inputs
from kvplan.planner import plan as planned
from kvplan.report.address import Spot, places
from kvplan.report.regions import Region
from kvplan.sizing.plan import Plan
from kvplan.sizing.pool_layout import stage_layout
from kvplan.sizing.tensor import DTYPE_BYTES
from kvplan.state.sizes import StateSizes, plan_sizes

LAUNCHES: dict[
    str, tuple[str, str, dict[str, Any]]
] = {  # a launch of each kind of pools: model, GPU, and server arguments
    "plain": ("llama-3.1-8b", "h100", {"page_size": 16}),
    "latents": ("deepseek-v3", "h200", {"tp_size": 8}),
    "striped": ("deepseek-v3", "h200", {"tp_size": 8, "dcp_size": 8}),
    "index keys": ("deepseek-v3.2", "h200", {"tp_size": 8, "kv_cache_dtype": "fp8_e4m3"}),
    "sliding": ("gpt-oss-20b", "h100", {}),
    "hybrid": ("qwen3-next-80b-a3b", "h200", {"tp_size": 4}),
    "KDA": ("kimi-linear-48b-a3b-instruct", "h200", {"tp_size": 4}),
    "Mamba": ("nemotron-nano-9b-v2", "h100", {}),
    "sparse": ("minimax-m3-nvfp4", "b200", {"tp_size": 8}),
    "compressed": ("deepseek-v4-flash", "b200", {"tp_size": 8}),
    "MXFP8": ("llama-3.1-8b", "b200", {"kv_cache_dtype": "mxfp8", "page_size": 128}),
    "NVFP4": ("llama-3.1-8b", "b200", {"kv_cache_dtype": "nvfp4", "page_size": 128}),
    "FP4": ("llama-3.1-8b", "b200", {"kv_cache_dtype": "fp4_mx_block16"}),
    "stages": ("llama-3.1-70b", "h100", {"tp_size": 4, "pp_size": 2}),
    "speculative": ("qwen3-next-80b-a3b", "h200", {"tp_size": 4, "speculative_algorithm": "NEXTN"}),
    "with a draft": ("deepseek-v3", "b200", {"tp_size": 8, "speculative_algorithm": "EAGLE"}),
}
STEPS = (1, 2, 3, 4, 31, 32, 64, 128)
Buffer = tuple[str, str, int | None, int]  # the last tells tensors of one name apart, in order


@cache
def plan_of(launch: str) -> Plan:
    model, gpu, server = LAUNCHES[launch]
    outcome = planned(read_inputs(PlanInputs(model=model, gpu=gpu, server=server))).outcome
    assert isinstance(outcome, Plan)
    return outcome


def spans(region: Region) -> list[tuple[int, int]]:
    """First byte and end of every piece."""
    turns = product(*(range(count) for count, _ in region.repeats))
    starts = [
        region.offset + sum(n * step for n, (_, step) in zip(turn, region.repeats, strict=True))
        for turn in turns
    ]
    return [(start, start + region.length) for start in starts]


def bytes_of(plan: Plan, spot: Spot) -> dict[Buffer, list[tuple[int, int]]]:
    """What the address names in each buffer of the first stage."""
    named: dict[Buffer, list[tuple[int, int]]] = defaultdict(list)
    met: dict[tuple[str, str, int | None, str], int] = defaultdict(int)
    for each in places(plan, plan.stages[0], spot):
        key = (each.pool, each.buffer, each.layer, each.region.what)
        named[(*key[:3], met[key])] += spans(each.region)
        met[key] += 1
    return named


def sizes_of(plan: Plan) -> dict[tuple[str, str], int]:
    """Bytes of the largest tensor of a name."""
    sizes: dict[tuple[str, str], int] = defaultdict(int)
    for each in stage_layout(plan, plan.stages[0]):
        key = (each.tensor.pool, each.tensor.name)
        one = math.prod(each.tensor.shape) * DTYPE_BYTES[each.tensor.dtype]
        sizes[key] = max(sizes[key], one)
    return sizes


def two_of(ids: range, random: Random) -> tuple[int, int]:
    """Two ids, neighbours in a tile or a page more often than not."""
    first = random.randrange(len(ids))
    second = (first + random.choice(STEPS)) % len(ids)
    return ids[first], ids[second]


def two_spots(sizes: StateSizes, ranks: int, random: Random) -> list[Spot]:
    """Two tokens on one decode-context rank with nothing in common."""
    page, rank = sizes.page_size, random.randrange(ranks)
    slots = two_of(range(page + rank, sizes.tokens + page, ranks), random)
    rows = two_of(range(1, sizes.rows), random)
    positions = two_of(range(sizes.row_width), random)
    sliding: tuple[int | None, int | None] = (None, None)
    state: tuple[int | None, int | None] = (None, None)
    if sizes.sliding_tokens:
        sliding = two_of(range(page, sizes.sliding_tokens + page), random)
    if sizes.state_slots:
        state = two_of(range(1, sizes.state_slots + 1), random)
    return [
        Spot(slot, window, row, position, state_slot)
        for slot, window, row, position, state_slot in zip(
            slots, sliding, rows, positions, state, strict=True
        )
    ]


def shares(plan: Plan, pool: str, buffer: str) -> bool:
    """Whether neighbours have one entry: compressed latents, their rings, pooled index keys."""
    indexer = plan.model.indexer
    pooled = buffer == "index_key" and indexer is not None and indexer.kpool > 1
    return pooled or pool in {"c4", "c128"} or buffer.endswith("state")


@pytest.mark.parametrize("launch", LAUNCHES)
@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 1 << 30))
def test_two_tokens_have_bytes_of_their_own(launch: str, seed: int):
    plan = plan_of(launch)
    first, second = two_spots(plan_sizes(plan), plan.resolved.widths.attn_dcp, Random(seed))
    largest = sizes_of(plan)
    ours, theirs = bytes_of(plan, first), bytes_of(plan, second)

    assert ours
    assert ours.keys() == theirs.keys()
    for (pool, buffer, layer, turn), pieces in ours.items():
        others = theirs[pool, buffer, layer, turn]
        both = sorted([*pieces, *others])
        apart = all(end <= start for (_, end), (start, _) in pairwise(both))
        same = sorted(pieces) == sorted(others)
        assert both[0][0] >= 0
        assert both[-1][1] <= largest[pool, buffer], (pool, buffer, first, second)
        assert apart or (same and shares(plan, pool, buffer)), (pool, buffer, first, second)
