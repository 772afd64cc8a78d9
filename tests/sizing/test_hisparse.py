"""HiSparse: cells, host pools and buffers worked out by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvplan.errors import CombinationError, InputError
from kvplan.sizing.capacity import capacity_at
from kvplan.sizing.ledger import ledger
from kvplan.spec.model import Indexer, Sparse
from tests.sizing.launched import planned
from tests.sizing.resolve.launches import B200, EAGLE, H100, compressed, dense, sparse_latent

ON = {"enable_hisparse": True, "disable_radix_cache": True}
SHARED = sparse_latent(indexer=Indexer(head_dim=128, shared_topk_layers=tuple(range(1, 32))))
MINIMAX = dense(
    "MiniMaxM3SparseForCausalLM",
    sparse=Sparse(
        dense_layers=(0, 1),
        sparse_layers=tuple(range(2, 32)),
        index_head_dim=128,
        index_k_only_layers=tuple(range(2, 31)),
    ),
)


def with_ratio(ratio: int, **more: Any) -> dict[str, Any]:
    return {**ON, "hisparse_config": json.dumps({"host_to_device_ratio": ratio}), **more}


@pytest.mark.parametrize(
    ("model", "args", "cell"),
    [
        # latents 32 × 576 × 2 B, index keys 32 × 132 B for twice the tokens
        (sparse_latent(), ON, 36864 + 8448),
        # five times the tokens
        (sparse_latent(), with_ratio(5), 36864 + 21120),
        # rows of fp8 with scales: 32 × 656 B
        (sparse_latent(), {**ON, "kv_cache_dtype": "fp8_e4m3"}, 20992 + 8448),
        # layers that share another's top-k own index keys after all
        (SHARED, ON, 36864 + 8448),
        # a draft layer over the logical tokens: 2 × 36,864 // 32, 2 × 132 B
        (sparse_latent(mtp_layers=1), {**ON, **EAGLE}, 36864 + 8448 + 2304 + 264),
        # one head: two dense layers for twice the tokens, 30 sparse ones, 512 B each; index
        # keys of 29 layers, keys and values of one: 31 × 128 × 2 B for twice the tokens
        (MINIMAX, {**ON, "tp_size": 8}, 34 * 512 + 62 * 256),
        # sliding 0.1 × (4 × 585 + 8 / 256 × 10,240 × 2), c4 2 × (585 / 8 + 33), c128 864 / 128
        (compressed(), ON, 298 + 212.25 + 6.75),
        (compressed(), {"disable_radix_cache": True}, 298 + 358.5 + 6.75),
    ],
)
def test_what_swaps_is_counted_once_and_the_rest_for_every_logical_token(model, args, cell):
    assert planned(model, **args).stages[0].pool.cell.num_bytes == cell


@pytest.mark.parametrize(
    ("model", "args", "tokens", "size", "bytes_per_token"),
    [
        # 8 GiB // 45,312 B in pages of 64; twice that and a page on the host
        (sparse_latent(), ON, 189568, 379200, 36864),
        (sparse_latent(), with_ratio(3), 173376, 520192, 36864),
        # the sparse layers alone: 30 × 512 B
        (MINIMAX, {**ON, "tp_size": 8, "page_size": 64}, 258048, 516160, 15360),
    ],
)
def test_the_host_holds_every_logical_token(model, args, tokens, size, bytes_per_token):
    plan = planned(model, **args)

    (host,) = plan.stages[0].host
    assert plan.tokens == tokens
    assert (host.pool, host.size, host.bytes_per_token) == ("kv", size, bytes_per_token)


def test_deepseek_v4_keeps_a_share_of_its_c4_latents_on_the_device():
    plan = planned(compressed(), **with_ratio(4))

    pools = plan.stages[0].pool.compressed
    (host,) = plan.stages[0].host
    assert pools is not None
    assert pools.c4_tokens == plan.tokens // 16
    # pages of 64 latents, 37,440 B, in two layers
    assert host.size == plan.tokens // 4
    assert host.num_bytes == plan.tokens // 4 // 64 * 37440 * 2


def test_the_swap_s_buffers_are_paid_outside_the_budget():
    plan = planned(sparse_latent(), max_running_requests=9, **ON)

    books = ledger(plan, plan.stages[0])
    # 10 rows of 4,096 + 64 slots; positions 131,072 + 4 + 64 and outputs of 2,048; 32 layers of
    # tokens, slots (4 B each) and order (2 B); the order's start and its numbers
    row = 8 * (4160 + 131140) + 4 * (2048 + 2048)
    layer = 10 * (2 * 4 * 4160 + 2 * 4096)
    assert books.bytes_of("HiSparse buffers") == 10 * row + 32 * layer + 6 * 4096 + 4
    assert books.bytes_of("logical to device mapping") == 8 * (2 * plan.tokens + 64 + 1)
    # pages of 64: of the device, and of twice as many logical tokens
    assert books.bytes_of("page free lists") == 3 * 8 * plan.tokens // 64


def test_a_speculative_swap_keeps_an_index_and_scratch_a_request():
    alone = planned(sparse_latent(), max_running_requests=9, **ON)
    drafted = planned(sparse_latent(), max_running_requests=9, **ON, **EAGLE)

    # 10 rows: two indexes of 8,192 buckets, policy of 4,096 and scratch of 4,096 in each layer
    layer = 8 * 10 * 2 * 8192 + 4 * (11 * 4096 + 10 * 4096)
    # metadata 5 × 8,192 of 11 rows, outputs of 4 × 2,048; hashes; 10 more positions in each row
    once = 4 * (11 * 40960 + 10 * 8192) + 2 * 8 * 4096
    wider = 10 * 8 * (drafted.reserves.row_width - alone.reserves.row_width)
    buffers = [
        ledger(plan, plan.stages[0]).bytes_of("HiSparse buffers") for plan in (alone, drafted)
    ]
    assert buffers[1] - buffers[0] == 32 * layer + once + wider


@pytest.mark.parametrize(
    ("context", "requests", "bound"),
    [
        # 379,136 logical tokens; a request of 100,000 takes 100,032
        (100000, 3, "host tokens"),
        # 189,568 device tokens; a buffer of 4,096 and a page for each request
        (5000, 45, "device tokens"),
        # a short request keeps only its own pages
        (100, 1481, "device tokens"),
    ],
)
def test_requests_are_bound_by_the_host_or_by_their_buffers(context, requests, bound):
    capacity = capacity_at(planned(sparse_latent(), **ON), context)

    assert (capacity.requests, capacity.bound_by) == (requests, bound)


@pytest.mark.parametrize(
    ("model", "args", "problem"),
    [
        (sparse_latent(), {"hisparse_config": '{"device_buffer_size": 100}'}, "below top_k"),
        (sparse_latent(), {"hisparse_config": '{"device_buffer_size": 4100}'}, "no multiple of 64"),
        (sparse_latent(), {**EAGLE, "speculative_num_steps": 4}, "2 to 4 draft tokens, not 5"),
        (sparse_latent(), {**EAGLE, "hisparse_config": '{"top_k": 512}'}, "top_k 1024"),
        (compressed(), EAGLE, "DeepSeek-V4 does not speculate"),
        (MINIMAX, {"tp_size": 4}, "one KV head a rank, not 2"),
    ],
)
def test_settings_that_the_swap_does_not_serve_are_refused(model, args, problem):
    with pytest.raises(CombinationError, match=problem):
        planned(model, H100, **ON, **args)


@pytest.mark.parametrize(
    "config", ["{", "[]", '{"host_to_device_ratio": 0}', '{"top_k": 2.5}', '{"top_k": true}',
               '{"swap_in_block_size": 2000}']
)  # fmt: skip
def test_configurations_that_cannot_be_read_name_the_argument(config):
    with pytest.raises(InputError, match="hisparse_config"):
        planned(sparse_latent(), B200, **ON, hisparse_config=config)
