"""Combinations that the engine refuses are refused with what is wrong and what to do."""

from __future__ import annotations

import pytest

from kvplan.errors import CombinationError
from kvplan.sizing.resolve.resolve import resolve
from kvplan.spec.model import Indexer
from kvplan.spec.server import server_args
from tests.sizing.resolve.launches import (
    A100,
    B200,
    H100,
    MI300X,
    RTX_5090,
    compressed,
    dense,
    hybrid,
    kimi,
    latent,
    sparse_latent,
)

HICACHE = {"enable_hierarchical_cache": True}
PREFILL_CP = {"enable_prefill_cp": True, "tp_size": 4}


def run(args, model=None, gpu=H100):
    return resolve(server_args(args), model or dense(), gpu)


@pytest.mark.parametrize(
    ("args", "model", "gpu", "problem"),
    [
        ({"context_length": 131073}, dense(), H100, "beyond the model's 131072"),
        ({"tp_size": 4, "attn_dp_size": 3}, dense(), H100, "not divisible"),
        ({"tp_size": 4, "attn_cp_size": 3}, dense(), H100, "not divisible"),
        ({"tp_size": 4, "attn_dp_size": 2, "dp_size": 2}, dense(), H100, "replicas"),
        ({"tp_size": 4, "dcp_size": 3}, dense(), H100, "does not divide"),
        ({"tp_size": 4, "dwdp_size": 2}, dense(), H100, "must equal tp_size"),
        (PREFILL_CP, latent(), H100, "needs a cp_strategy"),
        ({**PREFILL_CP, "cp_strategy": "zigzag", "dcp_size": 2}, latent(), H100, "exclude"),
        ({**PREFILL_CP, "cp_strategy": "zigzag"}, sparse_latent(), H100, "cp_strategy zigzag"),
        ({**PREFILL_CP, "cp_strategy": "zigzag"}, latent(), MI300X, "DeepSeek-V4 only"),
        (
            {**PREFILL_CP, "cp_strategy": "interleave", "disaggregation_mode": "decode"},
            sparse_latent(),
            H100,
            "decode node",
        ),
        ({"attention_backend": "fa3"}, dense("Gemma4ForCausalLM"), H100, "does not run on"),
        ({"decode_attention_backend": "fa3"}, dense("GptOssForCausalLM"), H100, "left open"),
        ({"attention_backend": "flashinfer"}, dense("Olmo3ForCausalLM"), H100, "does not run on"),
        ({"attention_backend": "triton"}, hybrid("Lfm2ForCausalLM"), H100, "does not run on"),
        ({"attention_backend": "trtllm_mha"}, dense(), A100, "compute capability 9.0"),
        (
            {"attention_backend": "trtllm_mha", "kv_cache_dtype": "fp8_e4m3"},
            dense(),
            RTX_5090,
            "does not prefill from an fp8_e4m3",
        ),
        (
            {"attention_backend": "trtllm_mha", "tp_size": 2, "attn_cp_size": 2},
            dense(),
            H100,
            "10.x only",
        ),
        ({"attention_backend": "trtllm_mla"}, latent(), H100, "Blackwell"),
        (
            {"attention_backend": "trtllm_mla", "kv_cache_dtype": "fp8_e5m2"},
            latent(),
            B200,
            "does not read",
        ),
        ({"prefill_attention_backend": "cutedsl_mla"}, latent(), B200, "only decodes"),
        ({"decode_attention_backend": "cutedsl_mla"}, latent(), RTX_5090, "10.x"),
        ({"kv_cache_dtype": "mxfp8"}, dense(), H100, "Blackwell"),
        ({"kv_cache_dtype": "nvfp4"}, dense(), H100, "compute capability"),
        ({"kv_cache_dtype": "fp4_mx_block16"}, dense(), MI300X, "NVIDIA"),
        ({"kv_cache_dtype": "fp4_mx_block16"}, dense(), H100, "does not run on fa3"),
        (
            {"kv_cache_dtype": "fp4_mx_block16", "attention_backend": "triton"},
            latent(),
            B200,
            "does not run on triton",
        ),
        ({"kv_cache_dtype": "nvfp4", "disaggregation_mode": "decode"}, dense(), B200, "disagg"),
        ({"kv_cache_dtype": "nvfp4", **HICACHE}, dense(), B200, "host form"),
        (
            {"kv_cache_dtype": "nvfp4", "speculative_algorithm": "NGRAM"},
            dense(),
            B200,
            "max_bfs_breadth 1",
        ),
        ({"kv_cache_dtype": "nvfp4", "attention_backend": "triton"}, dense(), B200, "prefill on"),
        ({"prefill_kv_cache_dequant_dtype": "nvfp4"}, dense(), B200, "belongs to an nvfp4"),
        ({"kv_cache_dtype": "fp8_e5m2"}, sparse_latent(), H100, "DSA"),
        ({"kv_cache_dtype": "bf16"}, compressed(), H100, "DeepSeek-V4"),
        ({"dsa_decode_backend": "triton"}, sparse_latent(), H100, "AMD only"),
        (
            {"dsa_decode_backend": "tilelang", "kv_cache_dtype": "fp8_e4m3"},
            sparse_latent(),
            H100,
            "for both",
        ),
        ({"tp_size": 2, "dcp_size": 2, **HICACHE}, sparse_latent(), H100, "no host tier"),
        (
            {"tp_size": 2, "dcp_size": 2},
            sparse_latent(indexer=Indexer(head_dim=128, kpool=2)),
            H100,
            "pooled index keys",
        ),
        (
            {"tp_size": 2, "dcp_size": 2, "attention_backend": "triton"},
            kimi("KimiK3ForConditionalGeneration"),
            B200,
            "cutedsl_mla or aiter",
        ),
        ({"disable_radix_cache": True, **HICACHE}, dense(), H100, "needs the radix cache"),
        ({"disaggregation_mode": "decode", **HICACHE}, dense(), H100, "needs the radix cache"),
        ({"hicache_host_memory_mode": "buffer_only", **HICACHE}, dense(), H100, "storage"),
        ({"tp_size": 2, "dcp_size": 2, **HICACHE}, dense(), H100, "latent attention only"),
        ({"enable_hisparse": True, "disable_radix_cache": True}, dense(), H100, "DSA"),
        ({"enable_hisparse": True}, sparse_latent(), H100, "disable_radix_cache"),
        ({"chunked_prefill_size": 1000, "page_size": 64}, dense(), H100, "not a multiple"),
        (
            {"disaggregation_mode": "prefill", "disaggregation_transfer_backend": "fake"},
            dense(),
            H100,
            "fake",
        ),
        (
            {
                "disaggregation_mode": "decode",
                "disaggregation_decode_enable_radix_cache": True,
                "speculative_algorithm": "NGRAM",
            },
            dense(),
            H100,
            "decode radix cache",
        ),
        ({"disaggregation_decode_retraction_backup": "host_pool"}, dense(), H100, "decode node"),
        ({"pp_size": 2}, dense("IQuestQ1ForCausalLM"), H100, "pipeline"),
        ({"tp_size": 2, "attn_dp_size": 2}, dense("MiniCPMForCausalLM"), H100, "DP attention"),
        (
            {"enable_deterministic_inference": True, "attention_backend": "flashmla"},
            latent(),
            H100,
            "deterministic",
        ),
    ],
)
def test_a_refusal_names_what_does_not_go_together(args, model, gpu, problem):
    with pytest.raises(CombinationError, match=problem):
        run(args, model, gpu)


@pytest.mark.parametrize(
    ("args", "model", "problem"),
    [
        ({"kv_cache_dtype": "mxfp8", "page_size": 16}, dense(), "page size 128 only"),
        (
            {"kv_cache_dtype": "fp4_mx_block16", "attention_backend": "triton"},
            dense(),
            "no host form",
        ),
    ],
)
def test_caches_without_a_host_form_fail_once_the_pools_are_built(args, model, problem):
    args = {"attention_backend": "triton", **args}

    assert run(args, model, B200).pool_refusal is None
    assert problem in str(run({**args, **HICACHE}, model, B200).pool_refusal)


@pytest.mark.parametrize(
    ("args", "model"),
    [
        ({"kv_cache_dtype": "mxfp8", "page_size": 128, "attention_backend": "triton"}, dense()),
        ({"kv_cache_dtype": "mxfp8", "attention_backend": "flashinfer"}, latent()),
        ({"kv_cache_dtype": "fp8_e4m3"}, dense()),
    ],
)
def test_caches_with_a_host_form_pass(args, model):
    assert run({**args, **HICACHE}, model, B200).pool_refusal is None


def test_a_longer_context_passes_where_the_launch_insists():
    resolved = run({"context_length": 262144, "allow_longer_context": True})

    assert resolved.context_length == 262144


@pytest.mark.parametrize(
    ("args", "model", "widths"),
    [
        ({"tp_size": 8}, dense(), (8, 1, 1)),
        ({"tp_size": 8, "dp_size": 4, "enable_dp_attention": True}, dense(), (2, 4, 1)),
        ({"tp_size": 8, "attn_dp_size": 2, "attn_cp_size": 2}, dense(), (2, 2, 2)),
        ({"tp_size": 4, "dp_size": 2}, dense(), (4, 1, 1)),
        ({"tp_size": 4, "dwdp_size": 4}, dense(), (1, 4, 1)),
        ({**PREFILL_CP, "cp_strategy": "zigzag"}, latent(), (1, 1, 4)),
        ({**PREFILL_CP, "cp_strategy": "zigzag", "dp_size": 2}, latent(), (1, 2, 2)),
        ({**PREFILL_CP, "cp_strategy": "interleave"}, sparse_latent(), (1, 1, 4)),
        (
            {**PREFILL_CP, "cp_strategy": "interleave", "attn_cp_size": 2},
            sparse_latent(),
            (2, 1, 2),
        ),
        ({**PREFILL_CP, "cp_strategy": "zigzag", "attn_cp_size": 2}, dense(), (2, 1, 2)),
    ],
)
def test_attention_shares_what_other_widths_leave(args, model, widths):
    found = run(args, model).widths

    assert (found.attn_tp, found.attn_dp, found.attn_cp) == widths


@pytest.mark.parametrize(
    ("args", "extra", "radix"),
    [
        ({"disaggregation_mode": "decode"}, 0, False),
        ({"disaggregation_mode": "decode", "max_running_requests": 16}, 32, False),
        ({"disaggregation_mode": "decode", "max_running_requests": 64}, 0, False),
        (
            {
                "disaggregation_mode": "decode",
                "max_running_requests": 64,
                "tp_size": 2,
                "attn_dp_size": 2,
            },
            64,
            False,
        ),
        ({"disaggregation_mode": "decode", "disaggregation_decode_extra_slots": 5}, 5, False),
        (
            {
                "disaggregation_mode": "decode",
                "disaggregation_decode_enable_radix_cache": True,
                "disable_radix_cache": True,
            },
            0,
            True,
        ),
        ({"disaggregation_mode": "prefill", "max_running_requests": 16}, 0, True),
    ],
)
def test_a_decode_node_keeps_rows_for_requests_on_their_way(args, extra, radix):
    resolved = run(args)

    assert (resolved.decode_extra_slots, resolved.radix_cache) == (extra, radix)
