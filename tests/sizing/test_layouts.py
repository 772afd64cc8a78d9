"""Layouts of single kernels and recipes: uniform latents, odd heads, stages without KV."""

from __future__ import annotations

import pytest

from kvplan.errors import CombinationError
from kvplan.sizing.ledger import ledger
from kvplan.spec.model import Mha
from tests.sizing.launched import planned
from tests.sizing.odd_launches import ALL_SLIDING
from tests.sizing.resolve.launches import B200, H100, compressed, dense, hybrid, kimi, latent

TRTLLM = {"dsv4_attn_backend": "trtllm"}
ODD = dense(attention=Mha(num_kv_heads=8, head_dim=96, v_head_dim=80))


def test_uniform_latents_have_no_scales_and_no_padding():
    plan = planned(compressed(), B200, **TRTLLM)

    # sliding 0.1 × (4 × 512 + 640 of c4 state), c4 2 × (512 / 4 + 33), c128 512 / 128
    assert plan.stages[0].pool.cell.num_bytes == pytest.approx(268.8 + 322 + 4)
    pools = plan.stages[0].pool.compressed
    assert pools is not None
    books = ledger(plan, plan.stages[0])
    # 4 layers; a page of 256 for padding
    assert books.bytes_of("sliding KV") == 4 * 512 * (pools.sliding_tokens + 256)
    assert plan.resolved.not_modelled == ()


@pytest.mark.parametrize(
    ("gpu", "args", "problem"),
    [
        (H100, TRTLLM, "compute capability 10.x"),
        (B200, {**TRTLLM, "kv_cache_dtype": "bfloat16"}, "fp8_e4m3 cache"),
        (B200, {**TRTLLM, "chunked_prefill_size": -1}, "chunked prefill"),
        (B200, {**TRTLLM, "disaggregation_mode": "decode"}, "disaggregation"),
        (B200, {"dsv4_attn_backend": "flashmla_mega"}, "DeepSeek-V4.1 only"),
    ],
)
def test_what_trtllm_does_not_serve_of_deepseek_v4_is_refused(gpu, args, problem):
    with pytest.raises(CombinationError, match=problem):
        planned(compressed(), gpu, **args)


@pytest.mark.parametrize(
    ("model", "args", "warned"),
    [
        # 96 is a multiple of 32 and 80 is not
        (ODD, {"kv_cache_dtype": "mxfp8"}, ["heads of 80: 32 must divide them"]),
        (ODD, {"kv_cache_dtype": "nvfp4"}, ["heads of 96: 64 must divide them"]),
        (dense(), {"kv_cache_dtype": "mxfp8"}, []),
        (dense(), {"kv_cache_dtype": "nvfp4"}, []),
        (latent("DeepseekV2ForCausalLM"), {"kv_cache_dtype": "mxfp8"}, []),
    ],
)
def test_heads_that_a_block_scaled_pool_refuses_are_named(model, args, warned):
    found = [each for each in planned(model, B200, **args).resolved.warnings if "pool" in each]

    assert len(found) == len(warned)
    assert all(text in each for text, each in zip(warned, found, strict=True))


@pytest.mark.parametrize(
    ("recipe", "cell"),
    [
        # one full layer of four: 8 heads × 256 B, a scale byte per 32
        ("mxfp8", 2048 + 64),
        # 8 heads × 128 B of data and a byte per 16 elements
        ("fp4_mx_block16", 1024 + 128),
        # prefill and decode read native scales: 8 × 128 B, 8 × 16 B
        ("nvfp4", 1024 + 128),
    ],
)
def test_hybrids_count_a_recipe_over_their_full_layers(recipe, cell):
    backend = "trtllm_mha" if recipe == "nvfp4" else None
    plan = planned(hybrid(), B200, kv_cache_dtype=recipe, attention_backend=backend)

    assert plan.stages[0].pool.cell.num_bytes == cell


def test_a_latent_hybrid_in_fp4_stores_more_than_its_budget():
    plan = planned(kimi(), B200, kv_cache_dtype="nvfp4", attention_backend="flashinfer")

    # budgeted 288 + 36 B a token, stored as 576 B
    assert plan.stages[0].pool.cell.num_bytes == 324
    books = ledger(plan, plan.stages[0])
    assert books.bytes_of("KV") == 576 * (plan.tokens + plan.resolved.page_size)
    assert books.overrun_bytes > 252 * plan.tokens * 0.9


def test_layers_that_all_slide_take_one_pool_without_a_ratio():
    plan = planned(ALL_SLIDING)

    pool = plan.stages[0].pool
    assert pool.sliding is not None
    # 32 layers × 8 heads × 256 × 2 B
    assert (plan.tokens, pool.sliding.full_tokens, pool.sliding.sliding_tokens) == (65536, 0, 65536)
    books = ledger(plan, plan.stages[0])
    assert books.bytes_of("full to sliding mapping") == 8 * (65536 + 1 + 1)
    assert books.bytes_of("page free lists") == 8 * 65536


def test_layers_that_all_slide_take_single_tokens_alone():
    with pytest.raises(CombinationError, match="page_size 1 alone, not 16"):
        planned(ALL_SLIDING, page_size=16)


def test_a_stage_without_attention_layers_follows_the_others():
    # four layers in two stages: linear ones alone, then one linear and one full
    plan = planned(hybrid(), pp_size=2, tp_size=1)

    first, second = (stage.pool for stage in plan.stages)
    assert first.cell.num_bytes == 0
    assert second.cell.num_bytes == 4096
    assert first.tokens == second.tokens == plan.tokens == second.profiled_tokens
