"""KV cache sharding: scratch, tokens and refusals worked out by hand."""

from __future__ import annotations

import pytest

from kvplan.errors import CombinationError
from kvplan.sizing.capacity import capacity_at
from kvplan.sizing.ledger import ledger
from tests.sizing.launched import EIGHT_GIB, planned
from tests.sizing.resolve.launches import B200, EAGLE, H100, dense, hybrid, latent, sparse_latent
from tests.sizing.sharded import GLM, GLM_ARGS, SHARDED, STRIPED


@pytest.mark.parametrize(
    ("model", "gpu", "args", "shards", "scratch", "cell"),
    [
        # 8 contexts of 1,024, a span of 4 × 64; a chunk and a page: 16,448 rows of 1,152 B, twice
        (latent("DeepseekV2ForCausalLM"), H100, SHARDED, 4, 2 * 16448 * 1152, 36864),
        # two ranks of a span of 128; 4 of 8 heads × 256 × 2 B
        (dense(), H100, {**SHARDED, **STRIPED}, 2, 2 * 16448 * 2048, 65536),
        # rows of 576 B and index keys of 132 B
        (GLM, B200, GLM_ARGS, 4, 2 * 16448 * 708, 32 * 708),
        # the draft gathers into scratch of its own, and takes a 32nd more of the token
        (GLM, B200, {**GLM_ARGS, **EAGLE}, 4, 4 * 16448 * 708, 33 * 708),
    ],
)
def test_scratch_comes_off_the_budget_first(model, gpu, args, shards, scratch, cell):
    plan = planned(model, gpu, **args)

    pool = plan.stages[0].pool
    assert plan.resolved.kv_shards == shards
    assert pool.cell.num_bytes == cell
    assert plan.tokens == (EIGHT_GIB - scratch) // cell // 64 * 64
    books = ledger(plan, plan.stages[0])
    assert books.bytes_of("gather scratch") == scratch
    pages = plan.tokens // 64
    assert books.bytes_of("page free lists") == 8 * shards * pages
    pools = 2 if "speculative_algorithm" in args else 1
    assert books.bytes_of("gather plan") == 4 * pools * shards * (pages + 2)


def test_a_request_s_pages_are_spread_over_the_ranks():
    plan = planned(latent("DeepseekV2ForCausalLM"), H100, **SHARDED)

    assert capacity_at(plan, 1000).requests == min(
        plan.max_running_requests, 4 * plan.tokens // 1024
    )


def test_a_chunk_ends_with_a_page_and_a_default_fraction_gives_way():
    args = {**SHARDED, "chunked_prefill_size": 8200, "mem_fraction_static": None}
    plan = planned(latent("DeepseekV2ForCausalLM"), H100, **args)
    whole = planned(latent("DeepseekV2ForCausalLM"), H100, **{**args, "chunked_prefill_size": 8192})

    # 8,200 in pages of 64: 8,256; 56 tokens more at 1.5 MiB of 81,559
    assert plan.resolved.chunked_prefill_size == 8256
    fraction = whole.resolved.mem_fraction_static - 1.5 * 56 / 81559
    assert plan.resolved.mem_fraction_static == pytest.approx(fraction, abs=1e-12)


@pytest.mark.parametrize(
    ("model", "gpu", "args", "problem"),
    [
        (latent(), H100, {"disaggregation_mode": None}, "prefill nodes only"),
        (latent(), H100, {"dcp_size": 2}, "dcp_size > 1"),
        (latent(), H100, {"page_size": 1}, "needs pages"),
        (latent(), H100, {"tp_size": 1}, "tp_size > 1"),
        (latent(), H100, {"chunked_prefill_size": -1}, "needs a chunked prefill"),
        (latent(), H100, {"disaggregation_transfer_backend": "mori"}, "mooncake or nixl"),
        (latent(), H100, {"attention_backend": "flashinfer"}, "prefills on fa3"),
        (latent(), H100, EAGLE, "GLM's own MTP layer"),
        (dense(), H100, {}, "needs prefill context parallelism"),
        (sparse_latent(), B200, {}, "interleaved prefill context parallelism"),
        (hybrid(), H100, STRIPED, "no form for the pools of Qwen3NextForCausalLM"),
    ],
)
def test_what_cannot_be_sharded_is_refused(model, gpu, args, problem):
    with pytest.raises(CombinationError, match=problem):
        planned(model, gpu, **{**SHARDED, **args})
