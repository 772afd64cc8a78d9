"""Unified memory: the buffer, its capacities and its floor, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.allocators.unified import UnifiedAllocator
from kvplan.errors import CombinationError
from kvplan.sizing.capacity import capacity_at
from kvplan.sizing.ledger import ledger
from kvplan.sizing.plan import NoStart
from kvplan.sizing.resolve.resolve import resolve
from kvplan.sizing.shortage import Shortage
from kvplan.sizing.stage import make_stage
from kvplan.sizing.unified import laid_out, most_full_tokens
from kvplan.spec.model import Mha, Sliding
from kvplan.spec.server import server_args
from kvplan.units import ceil_page
from tests.sizing.launched import EIGHT_GIB, GIB, outcome, planned
from tests.sizing.resolve.launches import B200, EAGLE, H100, compressed, dense, hybrid, kimi

UNIFIED = {"enable_unified_memory": True}
SLIDING = Sliding(
    window=127, layers=tuple(range(0, 32, 2)), num_kv_heads=8, head_dim=64, v_head_dim=64
)
GPT_OSS = dense(
    "GptOssForCausalLM",
    attention=Mha(num_kv_heads=8, head_dim=64, v_head_dim=64),
    sliding=SLIDING,
)


def test_full_and_sliding_tokens_share_the_budget_to_the_last_page():
    plan = planned(GPT_OSS, **UNIFIED)

    pool = plan.stages[0].pool
    # 16 layers a side, 8 heads × 128 × 2 B: 32,768 B; 262,144 / 1.8 = 145,635.6 full tokens, and
    # int(0.8 × 145,635) = 116,508 sliding ones; one more of each would not fit
    assert pool.sliding is not None
    assert (pool.sliding.full_tokens, pool.sliding.sliding_tokens) == (145636, 116508)
    assert pool.unified is not None
    assert pool.unified.total_bytes == EIGHT_GIB
    assert (pool.unified.full_entry, pool.unified.other_entry) == (32768, 32768)
    # each side alone: all 262,144 entries but the padding one
    assert (pool.unified.full_capacity, pool.unified.other_capacity) == (262143, 262143)


def test_a_cap_leaves_the_rest_of_the_budget_alone():
    plan = planned(GPT_OSS, max_total_tokens=1000, **UNIFIED)

    pool = plan.stages[0].pool
    assert pool.unified is not None
    # 1,000 full and 800 sliding tokens
    assert pool.unified.total_bytes == 1800 * 32768
    assert pool.unified.full_capacity == 1799
    books = ledger(plan, plan.stages[0])
    assert books.bytes_of("unified pool") == 1800 * 32768
    assert books.bytes_of("unused budget") == EIGHT_GIB - 1800 * 32768


def test_state_slots_ride_on_top_of_the_tokens_budget():
    plan = planned(hybrid(), max_mamba_cache_size=100, **UNIFIED)

    pool = plan.stages[0].pool
    # a slot: 3 layers × (8,192 × 3 × 2 B + 32 × 128 × 128 × 4 B) = 6,438,912 B, 101 of them
    kv = EIGHT_GIB - 101 * 6438912
    assert pool.budget.num_bytes == kv
    assert pool.unified is not None
    # the budget in whole 4,096 B, and 100 slots; a token is 8 heads × 256 × 2 B
    assert pool.unified.total_bytes == kv // 4096 * 4096 + 100 * 6438912
    assert (pool.unified.full_entry, pool.unified.other_entry) == (4096, 6438912)
    # 8,583,495,680 B hold 2,095,580 tokens; the padding is one state slot
    assert pool.unified.full_capacity == (pool.unified.total_bytes - 6438912) // 4096


def test_latents_share_a_buffer_with_kimi_states():
    plan = planned(kimi(), page_size=64, **UNIFIED)

    pool = plan.stages[0].pool
    assert pool.unified is not None
    assert pool.unified.full_entry == 576 * 2
    assert pool.unified.full_capacity % 64 == 0
    books = ledger(plan, plan.stages[0])
    assert books.bytes_of("unified pool") == pool.unified.total_bytes
    assert books.bytes_of("recurrent state") == books.bytes_of("KV") == 0


@pytest.mark.parametrize(
    ("context", "requests"),
    [
        # 262,143 entries; a request takes 10,000 tokens, a window of 127, 128 more before its old
        # ones are released, and two pages
        (10000, 262143 // (10000 + 257)),
        (100, 262143 // (100 + 100)),
    ],
)
def test_requests_take_bytes_of_both_sides(context, requests):
    capacity = capacity_at(planned(GPT_OSS, max_running_requests=5000, **UNIFIED), context)

    assert (capacity.requests, capacity.bound_by) == (requests, "bytes of the unified pool")


def test_a_buffer_that_holds_no_request_does_not_start():
    # 1,000 tokens and 1 slot: three states and the padding slot are what one request may need
    refused = outcome(
        hybrid(), max_total_tokens=1000, max_mamba_cache_size=3, disable_radix_cache=True, **UNIFIED
    )

    assert isinstance(refused, NoStart)
    assert "cannot hold one request" in refused.shortage.problem


@pytest.mark.parametrize(
    ("model", "args", "gpu", "problem"),
    [
        (dense(), {}, H100, "serves models with sliding layers or recurrent state"),
        (compressed(), {}, H100, "does not run on dsv4"),
        (GPT_OSS, {"disable_hybrid_swa_memory": True}, H100, "sliding layers or recurrent state"),
        (GPT_OSS, {**EAGLE, "speculative_algorithm": "NGRAM"}, H100, "speculate with NGRAM"),
        (GPT_OSS, {**EAGLE, "speculative_eagle_topk": 4}, H100, "speculative_eagle_topk 1"),
        (GPT_OSS, {"enable_two_batch_overlap": True}, H100, "enable_two_batch_overlap"),
        (hybrid(), {"attention_backend": "hpc_ops"}, H100, "does not run on hpc_ops"),
        (hybrid(), {"linear_attn_backend": "cutedsl"}, H100, "decode states on cutedsl"),
        (GPT_OSS, {"pp_size": 2, "disaggregation_mode": "prefill"}, H100, "no pipeline"),
        (hybrid(), {"dcp_size": 2, "tp_size": 2}, H100, "latent attention only"),
        (GPT_OSS, {"kv_cache_dtype": "nvfp4"}, B200, "FP4 caches do not go"),
        (
            dense("GptOssForCausalLM", sliding=SLIDING,
                  attention=Mha(num_kv_heads=1, head_dim=4, v_head_dim=4)),
            {}, H100, "multiples of 16 bytes, not 8",
        ),
    ],
)  # fmt: skip
def test_what_does_not_go_with_one_buffer_is_refused(model, args, gpu, problem):
    with pytest.raises(CombinationError, match=problem):
        planned(model, gpu, **UNIFIED, **args)


@pytest.mark.parametrize(
    ("model", "args"),
    [(GPT_OSS, EAGLE), (GPT_OSS, {"enable_hierarchical_cache": True, "hicache_size": 1})],
)
def test_drafts_and_host_tiers_of_one_buffer_are_named_as_not_modelled(model, args):
    plan = planned(model, **UNIFIED, **args)

    assert plan.resolved.not_modelled == ("enable_unified_memory",)
    assert plan.stages[0].pool.unified is None


@given(
    budget=st.integers(1, 10**7),
    page=st.sampled_from([1, 16, 64]),
    full=st.integers(1, 5000),
    sliding=st.integers(0, 5000),
    ratio=st.floats(0.01, 1.0),
)
def test_no_page_more_fits_beside_its_sliding_share(budget, page, full, sliding, ratio):
    tokens = most_full_tokens(budget, page, full_bytes=full, sliding_bytes=sliding, ratio=ratio)

    taken, more = (
        each * full + int(each * ratio) // page * page * sliding for each in (tokens, tokens + page)
    )
    assert tokens % page == 0
    assert taken <= budget < more


@settings(max_examples=50, deadline=None)
@given(
    total=st.integers(1 << 14, 1 << 20),
    page=st.sampled_from([1, 4, 16]),
    full=st.integers(1, 20),
    other=st.integers(1, 40),
    slides=st.booleans(),
)
def test_an_empty_buffer_holds_what_its_allocator_hands_out(total, page, full, other, slides):
    args: dict[str, Any] = {"mem_fraction_static": 0.5, "page_size": page}
    model = GPT_OSS if slides else hybrid()
    stage = make_stage(model, resolve(server_args(args), model, H100), None, 0)
    found = laid_out(stage, total, 32 * full, 32 * other, slides=slides)

    if isinstance(found, Shortage):
        assert found.need_bytes is not None
        assert total < found.need_bytes
        return
    side = {"swa_token_bytes" if slides else "state_slot_bytes": 32 * other}
    allocator = UnifiedAllocator(total, page, full_token_bytes=32 * full, **side)
    # the engine keeps each side off the other's first page, even where that one is empty
    full_page, other_page = 32 * full * page, 32 * other * (page if slides else 1)
    most = allocator.full_available_size()
    assert most - ceil_page(other_page, full_page) // (32 * full) <= found.full_capacity <= most
    if not slides:
        assert allocator.state_slots is not None
        most = allocator.state_slots.available_size()
        assert most - ceil_page(full_page, other_page) // other_page <= found.other_capacity <= most


def test_figures_are_of_the_round_memory():
    assert EIGHT_GIB == 8 * GIB == 262144 * 32768
