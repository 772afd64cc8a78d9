"""Steps, branches and draft tokens of every algorithm, and what each of them needs."""

from __future__ import annotations

import pytest

from kvplan.errors import CombinationError
from kvplan.sizing.resolve.resolve import resolve
from kvplan.spec.server import server_args
from tests.sizing.resolve.launches import (
    A100,
    B200,
    EAGLE,
    H100,
    MI300X,
    compressed,
    dense,
    hybrid,
    kimi,
    latent,
)

DRAFT = dense("DFlashDraftModel", num_layers=5, block_size=16)
SPARK = dense("DSparkDraftModel", num_layers=5, block_size=7)


def run(args, model=None, gpu=H100, draft=None):
    return resolve(server_args(args), model or dense(), gpu, draft)


def numbers(resolved):
    found = resolved.speculation
    return found.algorithm, found.num_steps, found.eagle_topk, found.num_draft_tokens


def asked(algorithm, steps=None, topk=None, tokens=None, **more):
    return {
        "speculative_algorithm": algorithm,
        "speculative_num_steps": steps,
        "speculative_eagle_topk": topk,
        "speculative_num_draft_tokens": tokens,
        **more,
    }


@pytest.mark.parametrize(
    ("args", "model", "draft", "expected"),
    [
        (asked(None), dense(), None, (None, None, None, None)),
        (asked("EAGLE"), dense(), None, ("EAGLE", 5, 4, 8)),
        (asked("EAGLE3"), dense("Grok1ForCausalLM"), None, ("EAGLE3", 5, 4, 8)),
        (asked("EAGLE"), dense("Qwen3ForCausalLM"), None, ("EAGLE", 3, 1, 4)),
        (asked("NEXTN"), latent(), None, ("EAGLE", 3, 1, 4)),
        (asked("eagle"), latent(), None, ("EAGLE", 3, 1, 4)),
        (asked("STANDALONE"), dense(), dense(), ("STANDALONE", 3, 1, 4)),
        (asked("EAGLE", 5, 4, 16), dense(), None, ("EAGLE", 5, 4, 16)),
        (asked("EAGLE", 5, 1, 16), dense(), None, ("EAGLE", 5, 1, 6)),
        (asked("EAGLE", 5, 1), dense(), None, ("EAGLE", 5, 1, 6)),
        (asked("NGRAM"), dense(), None, ("NGRAM", 1, 10, 12)),
        (asked("NGRAM", tokens=4), dense(), None, ("NGRAM", 0, 10, 4)),
        (asked("NGRAM", topk=2), dense(), None, ("NGRAM", 1, 10, 12)),
        (
            asked("NGRAM", speculative_ngram_max_bfs_breadth=3),
            dense(),
            None,
            ("NGRAM", 4, 3, 12),
        ),
        (asked("DFLASH"), dense(), DRAFT, ("DFLASH", 1, 1, 16)),
        (asked("DFLASH", 3, 4), dense(), DRAFT, ("DFLASH", 1, 1, 16)),
        (asked("DFLASH", tokens=8), dense(), DRAFT, ("DFLASH", 1, 1, 8)),
        (
            asked("DFLASH", speculative_dflash_block_size=4),
            dense(),
            DRAFT,
            ("DFLASH", 1, 1, 4),
        ),
        (
            asked("DFLASH", speculative_draft_model_path="/drafts/x"),
            dense(),
            None,
            ("DFLASH", 1, 1, 16),
        ),
        (asked("DSPARK"), dense(), SPARK, ("DSPARK", 1, 1, 8)),
        (asked("DSPARK"), dense(block_size=5), None, ("DSPARK", 1, 1, 6)),
        (
            asked("DSPARK", tokens=4),
            dense(),
            dense("DSparkDraftModel"),
            ("DSPARK", 1, 1, 4),
        ),
        (
            asked("NEXTN", 3, 1, 4),
            dense("Gemma4ForCausalLM"),
            dense("Gemma4AssistantForCausalLM"),
            ("FROZEN_KV_MTP", 3, 1, 4),
        ),
        (asked("UNO", tokens=6, uno_lora_path="/lora"), dense(), None, ("UNO", 1, 1, 6)),
        (
            asked("UNO", 3, 4, 9, uno_lora_path="/lora", attention_backend="fa3"),
            dense(),
            None,
            ("UNO", 3, 4, 9),
        ),
    ],
)
def test_each_algorithm_fills_in_its_numbers(args, model, draft, expected):
    assert numbers(run(args, model, draft=draft)) == expected


@pytest.mark.parametrize(
    ("args", "model", "running"),
    [
        (asked("EAGLE"), dense(), 48),
        (asked("NGRAM"), dense(), 48),
        (asked("EAGLE", max_running_requests=7), dense(), 7),
        (asked("EAGLE", 3, 1, 4), compressed(), 256),
        (asked(None), compressed(), 256),
        (asked(None), dense(), None),
        (asked("UNO", tokens=4, uno_lora_path="/lora"), dense(), None),
    ],
)
def test_speculation_limits_the_running_requests(args, model, running):
    assert run(args, model).max_running_requests == running


def test_adaptive_speculation_sizes_for_its_longest_chain():
    adaptive = run(asked("EAGLE", speculative_adaptive=True)).speculation
    tree = run(asked("EAGLE", 3, 4, 8, speculative_adaptive=True)).speculation

    assert (adaptive.num_steps, adaptive.num_draft_tokens, adaptive.max_draft_tokens) == (3, 4, 8)
    assert (tree.num_draft_tokens, tree.max_draft_tokens) == (8, 8)


@pytest.mark.parametrize(
    ("args", "model", "gpu", "draft", "problem"),
    [
        (asked("EAGLE", topk=4), dense(), H100, None, "num_steps is missing"),
        (asked("EAGLE", 3), dense(), H100, None, "needs topk and draft tokens"),
        (asked("EAGLE", 3, 4), dense(), H100, None, "needs topk and draft tokens"),
        (
            asked("EAGLE", 3, 4, 8, page_size=16, attention_backend="fa4"),
            dense(),
            A100,
            None,
            "does not run on fa4",
        ),
        (
            asked("EAGLE", 3, 4, 8, attention_backend="trtllm_mha"),
            dense(),
            B200,
            None,
            "speculative_eagle_topk 1 only",
        ),
        (
            asked("NGRAM", page_size=16, attention_backend="triton"),
            dense(),
            H100,
            None,
            "flashinfer only",
        ),
        (
            asked("NGRAM", tp_size=2, dp_size=2, enable_dp_attention=True),
            dense(),
            H100,
            None,
            "DP attention",
        ),
        (
            asked("STANDALONE", tp_size=2, attn_dp_size=2),
            dense(),
            H100,
            None,
            "DP attention",
        ),
        (asked("DFLASH"), dense(), H100, None, "needs a draft"),
        (asked("DFLASH", pp_size=2), dense(), H100, DRAFT, "pipeline"),
        (
            asked("DFLASH", tokens=8, speculative_dflash_block_size=4),
            dense(),
            H100,
            DRAFT,
            "differs",
        ),
        (asked("DFLASH", tp_size=2, attn_dp_size=2), dense(), H100, DRAFT, "enable_dp_lm_head"),
        (asked("DSPARK"), dense(), H100, None, "needs a draft"),
        (asked("DSPARK", tokens=6), dense(), H100, SPARK, "block size 7"),
        (asked("DSPARK", pp_size=2), dense(), H100, SPARK, "prefill node"),
        (asked("EAGLE", pp_size=2), dense("Qwen3ForCausalLM"), H100, None, "prefill node"),
        (
            asked("EAGLE3", pp_size=2, disaggregation_mode="prefill"),
            dense("Qwen3ForCausalLM"),
            H100,
            None,
            "does not speculate with EAGLE3",
        ),
        (asked("NEXTN", 3, 1, 4), compressed(), H100, None, "does not speculate with NEXTN"),
        (asked("EAGLE"), compressed(), H100, None, "speculative_eagle_topk 1"),
        (asked("FROZEN_KV_MTP"), dense(), H100, None, "needs speculative_num_draft_tokens"),
        (
            asked("EAGLE3"),
            dense(),
            H100,
            dense("Gemma4AssistantForCausalLM"),
            "does not run as EAGLE3",
        ),
        (asked("UNO", tokens=4), dense(), H100, None, "uno_lora_path"),
        (asked("UNO", tokens=4, uno_lora_path="/l"), dense(), A100, None, "fa3"),
        (asked("UNO", tokens=4, uno_lora_path="/l", tp_size=2), dense(), H100, None, "one rank"),
        (asked("UNO", 1, 4, 9, uno_lora_path="/l"), dense(), H100, None, "1 steps of 4"),
        (asked("UNO", tokens=4, uno_lora_path="/l"), dense(), MI300X, None, "NVIDIA"),
        (
            asked("UNO", tokens=4, uno_lora_path="/l"),
            hybrid(),
            H100,
            None,
            "recurrent state needs max_running_requests",
        ),
        (asked("EAGLE", attention_backend="flex_attention"), dense(), H100, None, "flex_attention"),
    ],
)
def test_what_an_algorithm_does_not_go_with_is_refused(args, model, gpu, draft, problem):
    with pytest.raises(CombinationError, match=problem):
        run(args, model, gpu, draft)


@pytest.mark.parametrize(
    ("args", "model", "gpu", "backend", "stored"),
    [
        ({}, dense(), H100, "fa3", "bfloat16"),
        ({"kv_cache_dtype": "fp8_e4m3"}, dense(), H100, "fa3", "float8_e4m3fn"),
        ({"kv_cache_dtype": "fp8_e4m3"}, dense(), B200, "fa4", "bfloat16"),
        (
            {"kv_cache_dtype": "fp8_e4m3", "speculative_draft_kv_cache_dtype": "bf16"},
            dense(),
            H100,
            "fa3",
            "bfloat16",
        ),
        ({"speculative_draft_kv_cache_dtype": "fp8_e4m3"}, dense(), H100, "fa3", "float8_e4m3fn"),
        ({"attention_backend": "torch_native"}, dense(), H100, "flashinfer", "bfloat16"),
    ],
)
def test_a_block_draft_has_its_own_reader_and_dtype(args, model, gpu, backend, stored):
    resolved = run({"speculative_algorithm": "DFLASH", **args}, model, gpu, DRAFT)

    assert resolved.draft_attention_backend == backend
    assert resolved.draft_kv_cache_dtype == stored


def test_a_kimi_hybrid_pages_for_its_dense_draft():
    resolved = run(asked("DSPARK"), kimi(), B200, SPARK)

    assert resolved.draft_attention_backend == "trtllm_mha"
    assert resolved.page_size == 64


def test_nemotron_chains_page_and_track_states_on_data_centre_blackwell():
    model = hybrid("NemotronHForCausalLM")

    chain, tree = run(asked("EAGLE"), model, B200), run(asked("EAGLE", 3, 4, 8), model, B200)

    assert (chain.attention_backend, chain.page_size) == ("trtllm_mha", 64)
    assert chain.mamba_strategy == "extra_buffer"
    assert (tree.attention_backend, tree.draft_attention_backend) == ("triton", "flashinfer")


@pytest.mark.parametrize(
    ("model", "draft", "counted"),
    [
        (dense(), None, False),
        (dense(), dense("LlamaForCausalLMEagle", num_layers=1), True),
        (dense(mtp_layers=1), None, True),
    ],
)
def test_a_draft_that_nobody_names_is_told(model, draft, counted):
    warnings = run(EAGLE, model, draft=draft).warnings

    assert any("EAGLE without a draft" in text for text in warnings) is not counted
