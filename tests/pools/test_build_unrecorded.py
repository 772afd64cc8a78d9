"""Pools of launches that no record covers: the bytes of their ledger, on `meta`."""

from __future__ import annotations

import json

import pytest

from kvplan.pools.build import build
from kvplan.pools.build_host import host_tiers
from kvplan.spec.model import Indexer, Sparse
from tests.pools.recorded import built_bytes, planned_bytes
from tests.sizing.launched import planned
from tests.sizing.resolve.launches import compressed, dense, sparse_latent

SWAPS = {
    "enable_hisparse": True,
    "disable_radix_cache": True,
    "hisparse_config": json.dumps({"host_to_device_ratio": 3}),
}
EAGLE = {
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
MINIMAX = dense(
    "MiniMaxM3SparseForCausalLM",
    sparse=Sparse(
        dense_layers=(0, 1),
        sparse_layers=tuple(range(2, 32)),
        index_head_dim=128,
        index_k_only_layers=tuple(range(2, 31)),
    ),
)
SHARED = sparse_latent(indexer=Indexer(head_dim=128, shared_topk_layers=tuple(range(1, 32))))
HISPARSE = [
    (sparse_latent(), SWAPS),
    (SHARED, {**SWAPS, "kv_cache_dtype": "fp8_e4m3"}),
    (sparse_latent(mtp_layers=1), {**SWAPS, **EAGLE}),
    (MINIMAX, {**SWAPS, "tp_size": 8, "page_size": 64}),
    (compressed(), SWAPS),
]


@pytest.mark.parametrize(("model", "args"), HISPARSE)
def test_pools_that_swap_take_the_ledgers_bytes(model, args):
    plan = planned(model, **args)

    assert built_bytes(build(plan, "meta")) == planned_bytes(plan)


@pytest.mark.parametrize(("model", "args"), HISPARSE)
def test_their_host_side_has_the_planned_size_and_bytes(model, args):
    plan = planned(model, **args)

    (host,) = plan.stages[0].host
    (tier,) = host_tiers(build(plan, "meta")).values()
    assert (tier.size, tier.bytes()) == (host.size, host.num_bytes)
