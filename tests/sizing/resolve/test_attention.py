"""Attention backends, page sizes and cache dtypes by model and card."""

from __future__ import annotations

import pytest

from kvplan.sizing.resolve.resolve import resolve
from kvplan.spec.model import Indexer, Mha
from kvplan.spec.server import server_args
from tests.sizing.resolve.launches import (
    A100,
    B200,
    B300,
    H100,
    L40S,
    MI300X,
    RTX_5090,
    T4,
    compressed,
    dense,
    hybrid,
    kimi,
    latent,
    sparse_latent,
    vision,
)

CARDS = (T4, A100, H100, B200, RTX_5090, MI300X)


def run(args, model=None, gpu=H100, draft=None):
    return resolve(server_args(args), model or dense(), gpu, draft)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (dense(), "flashinfer flashinfer fa3 trtllm_mha flashinfer aiter"),
        (latent("DeepseekV2ForCausalLM"), "triton triton fa3 flashinfer triton triton"),
        (latent(), "triton triton fa3 trtllm_mla triton triton"),
        (latent(num_attention_heads=16), "triton triton fa3 trtllm_mla triton aiter"),
        (sparse_latent(), "dsa dsa dsa dsa dsa dsa"),
        (compressed(), "dsv4 dsv4 dsv4 dsv4 dsv4 dsv4"),
        (
            dense("GptOssForCausalLM", attention_sinks=True),
            "triton triton fa3 trtllm_mha triton aiter",
        ),
        (dense("Llama4ForCausalLM"), "triton triton fa3 trtllm_mha triton aiter"),
        (dense("Gemma4ForCausalLM"), "triton triton triton trtllm_mha triton triton"),
        (dense("Olmo2ForCausalLM"), "triton fa3 fa3 trtllm_mha fa3 triton"),
        (dense("Step3p5ForCausalLM"), "flashinfer flashinfer fa3 fa4 fa4 aiter"),
        (
            dense(
                "MiMoV2FlashForCausalLM",
                attention=Mha(num_kv_heads=4, head_dim=192, v_head_dim=128),
                attention_sinks=True,
            ),
            "triton triton fa3 fa4 triton aiter",
        ),
        (
            dense(attention=Mha(num_kv_heads=4, head_dim=192, v_head_dim=128)),
            "flashinfer flashinfer fa3 fa4 flashinfer aiter",
        ),
        (hybrid(), "flashinfer flashinfer fa3 triton flashinfer aiter"),
        (hybrid("NemotronHForCausalLM"), "flashinfer flashinfer fa3 trtllm_mha flashinfer aiter"),
        (hybrid("FalconH1ForCausalLM"), "flashinfer flashinfer fa3 triton flashinfer aiter"),
        (
            hybrid("GraniteMoeHybridForCausalLM"),
            "flashinfer flashinfer fa3 flashinfer flashinfer aiter",
        ),
        (
            dense("GraniteMoeHybridForCausalLM"),
            "flashinfer flashinfer fa3 trtllm_mha flashinfer aiter",
        ),
        (kimi("KimiK3ForConditionalGeneration"), "triton triton fa3 trtllm_mla triton triton"),
    ],
)
def test_default_backend_of_a_model_on_each_card(model, expected):
    found = [run({}, model, gpu).attention_backend for gpu in CARDS]

    assert " ".join(map(str, found)) == expected


@pytest.mark.parametrize(
    ("args", "gpu", "backend"),
    [
        ({"topk": 4}, H100, "flashinfer"),
        ({"topk": 1, "page_size": 16}, H100, "flashinfer"),
        ({"topk": 1, "page_size": 1}, H100, "fa3"),
        ({"topk": 1}, B200, "trtllm_mha"),
        ({"topk": 4}, B200, "flashinfer"),
        ({}, B200, "flashinfer"),
    ],
)
def test_trees_of_drafts_change_the_default_backend(args, gpu, backend):
    args = {"speculative_algorithm": "EAGLE", **args}
    topk = args.pop("topk", None)
    if topk is not None:
        args |= {
            "speculative_num_steps": 3,
            "speculative_eagle_topk": topk,
            "speculative_num_draft_tokens": 8,
        }

    assert run(args, gpu=gpu).attention_backend == backend


@pytest.mark.parametrize(
    ("backend", "gpu", "page", "expected"),
    [
        ("flashmla", H100, 1, 64),
        ("trtllm_mla", B200, None, 64),
        ("trtllm_mla", B200, 32, 32),
        ("trtllm_mla", B200, 16, 64),
        ("cutedsl_mla", B200, 128, 64),
        ("tokenspeed_mla", B200, 32, 32),
        ("triton", H100, 128, 128),
    ],
)
def test_latent_attention_backends_set_the_page(backend, gpu, page, expected):
    resolved = run({"attention_backend": backend, "page_size": page}, latent(), gpu)

    assert resolved.page_size == expected


@pytest.mark.parametrize(
    ("args", "gpu", "expected"),
    [
        ({"attention_backend": "trtllm_mha"}, H100, 64),
        ({"attention_backend": "trtllm_mha", "page_size": 16}, B200, 16),
        ({"prefill_attention_backend": "trtllm_mha", "page_size": 1}, B200, 64),
        ({"speculative_draft_attention_backend": "trtllm_mha", "page_size": 8}, H100, 64),
        ({"attention_backend": "hpc_ops", "page_size": 128}, H100, 64),
        ({"attention_backend": "fa4", "page_size": 16}, B200, 128),
        ({"attention_backend": "fa4", "page_size": 16}, RTX_5090, 16),
        ({"decode_attention_backend": "fa4"}, B300, 128),
        ({}, B200, 64),
        ({}, A100, 1),
        ({}, MI300X, 1),
    ],
)
def test_grouped_query_backends_set_the_page(args, gpu, expected):
    assert run(args, gpu=gpu).page_size == expected


@pytest.mark.parametrize(
    ("model", "gpu", "asked", "expected"),
    [
        (sparse_latent(), H100, 1, 64),
        (sparse_latent(indexer=Indexer(head_dim=128, kpool=4)), H100, 1, 256),
        (compressed(), H100, 64, 256),
        (hybrid(), B200, 32, 1),
        (dense("MiniMaxM3SparseForCausalLM"), H100, None, 128),
        (dense("MiniMaxM3SparseForCausalLM"), A100, None, 1),
        (dense("MiniMaxM3SparseForCausalLM"), B200, None, 128),
    ],
)
def test_models_set_the_page(model, gpu, asked, expected):
    assert run({"page_size": asked}, model, gpu).page_size == expected


@pytest.mark.parametrize(
    ("asked", "model", "gpu", "stored", "recipe"),
    [
        ("auto", dense(), H100, "bfloat16", None),
        (None, dense(dtype="float16"), H100, "float16", None),
        ("bf16", dense(dtype="float16"), H100, "bfloat16", None),
        ("bfloat16", dense(), H100, "bfloat16", None),
        ("fp8_e4m3", dense(), H100, "float8_e4m3fn", None),
        ("fp8_e5m2", dense(), H100, "float8_e5m2", None),
        ("mxfp8", dense(), B200, "float8_e4m3fn", "mxfp8"),
        ("nvfp4", dense(), B200, "float4_e2m1fn_x2", "nvfp4"),
        ("auto", dense(kv_cache_dtype="fp8_e4m3"), H100, "float8_e4m3fn", None),
        ("bf16", dense(kv_cache_dtype="fp8_e4m3"), H100, "bfloat16", None),
        ("auto", sparse_latent(), H100, "bfloat16", None),
        ("auto", sparse_latent(), B200, "float8_e4m3fn", None),
        ("bf16", sparse_latent(), B200, "bfloat16", None),
        ("auto", sparse_latent(attention_sinks=True), B200, "bfloat16", None),
        ("auto", compressed(), H100, "float8_e4m3fn", None),
        ("bfloat16", compressed(), H100, "bfloat16", None),
    ],
)
def test_the_cache_dtype_is_read_as_the_engine_reads_it(asked, model, gpu, stored, recipe):
    resolved = run({"kv_cache_dtype": asked}, model, gpu)

    assert (resolved.kv_cache_dtype, resolved.kv_recipe) == (stored, recipe)


def test_the_launch_dtype_is_what_auto_follows():
    assert run({"dtype": "half"}).kv_cache_dtype == "float16"
    assert run({"dtype": "auto"}).kv_cache_dtype == "bfloat16"


@pytest.mark.parametrize(
    ("args", "gpu", "raw"),
    [
        ({"kv_cache_dtype": "fp8_e4m3"}, H100, False),
        ({"kv_cache_dtype": "fp8_e4m3"}, B200, True),
        ({"kv_cache_dtype": "fp8_e4m3"}, RTX_5090, True),
        ({"kv_cache_dtype": "fp8_e4m3", "tp_size": 2, "dcp_size": 2}, H100, True),
        (
            {
                "kv_cache_dtype": "fp8_e4m3",
                "dsa_prefill_backend": "tilelang",
                "dsa_decode_backend": "tilelang",
            },
            H100,
            True,
        ),
        ({"kv_cache_dtype": "fp8_e4m3"}, MI300X, True),
        ({"dsa_decode_backend": "trtllm", "disaggregation_mode": "prefill"}, H100, False),
        ({"dsa_decode_backend": "trtllm", "disaggregation_mode": "decode"}, H100, True),
    ],
)
def test_sparse_attention_keeps_raw_rows_where_its_kernels_do(args, gpu, raw):
    assert run(args, sparse_latent(), gpu).dsa_raw_layout is raw


def test_glm_on_consumer_blackwell_keeps_scaled_rows():
    args = {"kv_cache_dtype": "fp8_e4m3"}

    assert not run(args, sparse_latent("GlmMoeDsaForCausalLM"), RTX_5090).dsa_raw_layout


@pytest.mark.parametrize(
    ("args", "gpu", "pair"),
    [
        ({}, B200, ("trtllm_mha", "trtllm_mha")),
        ({}, RTX_5090, ("flashinfer", "trtllm_mha")),
        ({"attention_backend": "flashinfer"}, B200, ("flashinfer", "trtllm_mha")),
        ({"prefill_kv_cache_dequant_dtype": "fp8_e4m3"}, B200, ("flashinfer", "trtllm_mha")),
    ],
)
def test_an_nvfp4_cache_names_its_readers(args, gpu, pair):
    resolved = run({"kv_cache_dtype": "nvfp4", **args}, gpu=gpu)

    assert (resolved.prefill_attention_backend, resolved.decode_attention_backend) == pair


def test_fa3_gives_way_to_triton_for_fp8_e5m2():
    resolved = run({"kv_cache_dtype": "fp8_e5m2"})

    assert resolved.attention_backend == "triton"
    assert "fp8_e5m2" in str(resolved.provenance["attention_backend"])


def test_cutedsl_prefills_through_trtllm():
    resolved = run({"decode_attention_backend": "cutedsl_mla"}, latent(), B200)

    assert resolved.prefill_attention_backend == "trtllm_mla"


def test_deterministic_inference_drops_the_radix_cache_on_flashinfer():
    args = {"enable_deterministic_inference": True}

    assert run(args).attention_backend == "fa3"
    assert run(args).radix_cache
    assert run(args, gpu=B200).attention_backend == "flashinfer"
    assert not run(args, gpu=B200).radix_cache


def test_qwen_vision_on_a_large_hopper_card_decodes_on_flashinfer():
    model = vision("Qwen3VLForConditionalGeneration")

    large, small = run({}, model), run({}, model, L40S)

    assert (large.attention_backend, large.decode_attention_backend) == ("fa3", "flashinfer")
    assert small.decode_attention_backend == "flashinfer"
    assert run({"max_running_requests": 400}, model).decode_graph_max_bs == 400


def test_images_reserve_memory_after_the_pools():
    assert run({}, vision()).multimodal_reservation_mib == 100
    assert run({"mm_feature_transport": "cuda_ipc"}, vision()).multimodal_reservation_mib == 1124
    assert run({}).multimodal_reservation_mib == 0
