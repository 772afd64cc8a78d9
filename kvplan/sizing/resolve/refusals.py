"""Combinations that the engine refuses before it sizes anything."""

from __future__ import annotations

import msgspec

from kvplan.errors import CombinationError
from kvplan.sizing.resolve import architectures as arch
from kvplan.sizing.resolve.backends import Backends
from kvplan.sizing.resolve.kv_dtype import FP4
from kvplan.sizing.resolve.launch import BLACKWELL, Launch
from kvplan.sizing.resolve.parallel import Layout
from kvplan.spec.model import ModelSpec

TRTLLM_MHA_FAMILIES = frozenset({"sm90", "sm100", "sm120"})
TRTLLM_MLA_DTYPES = frozenset({"fp8_e4m3", "bf16", "auto"})
CUTEDSL_DTYPES = TRTLLM_MLA_DTYPES | {"bfloat16"}
FP4_MLA = frozenset({"flashinfer", "trtllm_mla"})
FP4_MHA = frozenset({"triton", "torch_native", "flex_attention", "trtllm_mha"})
FP4_MHA_UNDER_FA4 = FP4_MHA - {"trtllm_mha"}
NATIVE_FP4_SPECULATION = frozenset({"EAGLE", "EAGLE3", "NEXTN", "NGRAM"})
MOST_RING_DRAFTS = 10
NVFP4_PREFILL = {"flashinfer": "fp8_e4m3", "trtllm_mha": "nvfp4"}


def check_model(launch: Launch, layout: Layout, backends: Backends) -> None:
    """Refuse what an architecture does not run with; backends as its own rules left them."""
    name, args = launch.model.architecture, launch.args
    accepted = arch.ACCEPTED.get(name)
    if accepted is not None:
        needed = backends.pair if accepted.both_phases else (backends.base,)
        for backend in needed:
            if backend not in accepted.backends:
                raise CombinationError(
                    f"{name} does not run on attention backend {backend or 'left open for one phase'}",
                    hint=f"one of: {', '.join(sorted(accepted.backends))}",
                )
    if backends.base is not None and arch.EXCLUDED.get(name) == backends.base:
        raise CombinationError(
            f"{name} does not run on attention backend {backends.base}",
            hint="leave attention_backend open",
        )
    if layout.attn_dp > 1 and name in arch.NO_DP_ATTENTION:
        raise CombinationError(f"{name} does not run with DP attention")
    if layout.pp > 1 and name in arch.NO_PIPELINE:
        raise CombinationError(f"{name} does not run with pipeline parallelism")
    if launch.model.compressed is not None and args.speculative_algorithm is not None:
        check_compressed(launch)
    if launch.dsa and layout.dcp > 1:
        check_dsa_dcp(launch)


def check_compressed(launch: Launch) -> None:
    """DeepSeek-V4 speculates with EAGLE chains and DSPARK, by these very names."""
    algorithm, topk = launch.args.speculative_algorithm, launch.args.speculative_eagle_topk
    if algorithm not in ("EAGLE", "DSPARK"):
        raise CombinationError(
            f"DeepSeek-V4 does not speculate with {algorithm}", hint="use EAGLE or DSPARK"
        )
    if algorithm == "EAGLE" and topk != 1:
        raise CombinationError(
            f"DeepSeek-V4 speculates with speculative_eagle_topk 1, got {topk}",
            hint="set steps, topk 1 and draft tokens",
        )


def check_uniform_latents(launch: Launch, layout: Layout, chunk: int) -> None:
    """DeepSeek-V4's own attention backends: trtllm and what it does not serve."""
    args, asked = launch.args, launch.args.dsv4_attn_backend
    if launch.model.compressed is None or asked not in ("trtllm", "flashmla_mega"):
        return
    if asked == "flashmla_mega":
        raise CombinationError("dsv4_attn_backend flashmla_mega serves DeepSeek-V4.1 only")
    role = args.disaggregation_mode in ("prefill", "decode")
    striped = layout.attn_cp > 1 or layout.dcp > 1 or args.enable_prefill_cp
    for refused, problem in (
        (launch.family != "sm100", "needs compute capability 10.x"),
        (args.kv_cache_dtype not in (None, "auto", "fp8_e4m3"), "needs an fp8_e4m3 cache"),
        (args.enable_hisparse, "does not go with HiSparse"),
        (striped, "does not go with context parallelism"),
        (role, "does not go with disaggregation"),
        (chunk <= 0, "needs a chunked prefill"),
    ):
        if refused:
            raise CombinationError(f"dsv4_attn_backend trtllm {problem}")


def check_rings(model: ModelSpec, draft_tokens: int | None) -> None:
    """A verify step writes all its drafts into the c4 ring of 16, which spans 8 tokens."""
    compressed = model.compressed
    if compressed is None or 4 not in compressed.ratios or draft_tokens is None:
        return
    if draft_tokens > MOST_RING_DRAFTS:
        raise CombinationError(
            f"DeepSeek-V4's compression state keeps {MOST_RING_DRAFTS} draft tokens, not {draft_tokens}",
            hint="lower speculative_num_draft_tokens",
        )


def check_dsa_dcp(launch: Launch) -> None:
    """Sparse attention under decode context parallelism serves little else."""
    args, indexer = launch.args, launch.model.indexer
    if args.enable_hisparse:
        raise CombinationError("sparse attention with dcp_size > 1 takes no HiSparse")
    if args.disaggregation_mode in ("prefill", "decode"):
        raise CombinationError("sparse attention with dcp_size > 1 takes no disaggregation")
    if args.speculative_eagle_topk not in (None, 1):
        raise CombinationError("sparse attention with dcp_size > 1 needs speculative_eagle_topk 1")
    if indexer is not None and indexer.kpool > 1:
        raise CombinationError("pooled index keys do not go with dcp_size > 1")


def nvfp4_backends(launch: Launch, backends: Backends) -> Backends:
    """An nvfp4 cache names its own readers: prefill by how it dequantises, decode trtllm_mha."""
    args = launch.args
    asked: str = args.prefill_kv_cache_dequant_dtype or "auto"
    if args.kv_cache_dtype != "nvfp4":
        if asked != "auto":
            raise CombinationError("prefill_kv_cache_dequant_dtype belongs to an nvfp4 cache")
        return backends
    named = backends.prefill or backends.base
    if asked == "auto" and named is not None and named not in NVFP4_PREFILL:
        raise CombinationError(
            f"an nvfp4 cache does not prefill on {named}", hint="use flashinfer or trtllm_mha"
        )
    if asked == "auto":
        native = launch.family == "sm100"
        asked = NVFP4_PREFILL[named] if named else "nvfp4" if native else "fp8_e4m3"
    if asked == "nvfp4" and launch.family != "sm100":
        raise CombinationError("reading nvfp4 natively in prefill needs compute capability 10.x")
    prefill = "trtllm_mha" if asked == "nvfp4" else "flashinfer"
    if backends.prefill not in (None, prefill):
        raise CombinationError(
            f"prefill_attention_backend {backends.prefill} does not dequantise to {asked}"
        )
    if backends.decode not in (None, "trtllm_mha"):
        raise CombinationError(f"an nvfp4 cache decodes on trtllm_mha, not {backends.decode}")
    return msgspec.structs.replace(backends, prefill=prefill, decode="trtllm_mha")


def check_backends(launch: Launch, layout: Layout, backends: Backends, kv_dtype: str) -> None:
    """Refuse backends that the card or the cache dtype rules out."""
    family = launch.family
    if "trtllm_mla" in (backends.base, backends.decode):
        if family not in BLACKWELL:
            raise CombinationError("trtllm_mla needs a Blackwell card")
        if kv_dtype not in TRTLLM_MLA_DTYPES:
            raise CombinationError(
                f"trtllm_mla does not read a {kv_dtype} cache",
                hint=f"one of: {', '.join(sorted(TRTLLM_MLA_DTYPES))}",
            )
    if backends.any_is("cutedsl_mla"):
        if backends.prefill == "cutedsl_mla":
            raise CombinationError("cutedsl_mla only decodes")
        if family != "sm100" or kv_dtype not in CUTEDSL_DTYPES:
            raise CombinationError(
                "cutedsl_mla needs compute capability 10.x and a bf16 or fp8_e4m3 cache"
            )
    if "trtllm_mha" in backends.pair:
        check_trtllm_mha(launch, layout, backends, kv_dtype)
    if backends.base == "flex_attention" and launch.args.speculative_algorithm is not None:
        raise CombinationError("flex_attention does not speculate")


def check_trtllm_mha(launch: Launch, layout: Layout, backends: Backends, kv_dtype: str) -> None:
    """trtllm_mha: Hopper and Blackwell, with gaps on SM 12.x."""
    if launch.family not in TRTLLM_MHA_FAMILIES:
        raise CombinationError(
            "trtllm_mha needs compute capability 9.0, 10.x or 12.x",
            hint="leave attention_backend open",
        )
    if backends.pair[0] != "trtllm_mha":
        return
    if launch.family == "sm120" and kv_dtype == "fp8_e4m3":
        raise CombinationError(
            "trtllm_mha on compute capability 12.x does not prefill from an fp8_e4m3 cache",
            hint="use flashinfer for prefill",
        )
    if launch.family != "sm100" and layout.attn_cp > 1:
        raise CombinationError(
            "trtllm_mha prefills with context parallelism on compute capability 10.x only"
        )


def check_recipe(launch: Launch, backends: Backends, kv_dtype: str) -> None:
    """Refuse block-scaled caches where card, backend or partner settings do not serve them."""
    if kv_dtype == "mxfp8" and launch.family not in BLACKWELL:
        raise CombinationError("an mxfp8 cache needs a Blackwell card", hint="use fp8_e4m3")
    if kv_dtype not in FP4:
        return
    if launch.family == "hip":
        raise CombinationError("FP4 caches serve NVIDIA cards only")
    if kv_dtype == "nvfp4" and launch.family not in ("sm100", "sm120"):
        raise CombinationError(
            "an nvfp4 cache needs compute capability 10.x or 12.x", hint="use fp4_mx_block16"
        )
    if launch.args.enable_unified_memory:
        raise CombinationError("FP4 caches do not go with enable_unified_memory")
    native = kv_dtype == "nvfp4" and launch.family == "sm100" and "trtllm_mha" in backends.pair
    if native:
        check_native_fp4(launch, backends.draft)
    prefill, decode = backends.pair
    if prefill == "fa4":
        allowed, used = FP4_MLA if launch.mla else FP4_MHA_UNDER_FA4, decode
    elif prefill != decode:
        return
    else:
        allowed, used = FP4_MLA if launch.mla else FP4_MHA, backends.base
    if used not in allowed:
        raise CombinationError(
            f"a {kv_dtype} cache does not run on {used}",
            hint=f"one of: {', '.join(sorted(allowed))}",
        )


def check_native_fp4(launch: Launch, draft: str | None) -> None:
    """The native nvfp4 layout of SM 10.x does not travel and takes few algorithms."""
    args = launch.args
    algorithm = args.speculative_algorithm
    if algorithm is not None and algorithm not in NATIVE_FP4_SPECULATION:
        raise CombinationError(
            f"the native nvfp4 layout does not speculate with {algorithm}",
            hint=f"one of: {', '.join(sorted(NATIVE_FP4_SPECULATION))}",
        )
    if algorithm == "NGRAM" and args.speculative_ngram_max_bfs_breadth != 1:
        raise CombinationError(
            "the native nvfp4 layout runs NGRAM at speculative_ngram_max_bfs_breadth 1 only"
        )
    if algorithm not in (None, "NGRAM") and draft not in (None, "trtllm_mha"):
        raise CombinationError(
            f"the native nvfp4 layout needs its draft on trtllm_mha, not {draft}"
        )
    if args.disaggregation_mode in ("prefill", "decode"):
        raise CombinationError("the native nvfp4 layout does not go with disaggregation")
    if args.enable_hierarchical_cache:
        raise CombinationError("the native nvfp4 layout has no host form")


def check_context(launch: Launch) -> None:
    """Refuse a context beyond the model's, unless the launch insists."""
    asked, own = launch.args.context_length, launch.model.context_length
    if asked is not None and asked > own and not launch.args.allow_longer_context:
        raise CombinationError(
            f"context_length {asked} is beyond the model's {own}",
            hint=f"use {own} or less, or allow_longer_context",
        )


def check_hisparse(launch: Launch, radix: bool) -> None:
    """HiSparse serves sparse attention without a radix cache and without trees."""
    args, model = launch.args, launch.model
    if not args.enable_hisparse:
        return
    if not launch.dsa and model.compressed is None and model.sparse is None:
        raise CombinationError("HiSparse serves DSA, DeepSeek-V4 and MiniMax-M3 models only")
    if radix:
        raise CombinationError("HiSparse needs disable_radix_cache")
    if args.speculative_algorithm is not None and (args.speculative_eagle_topk or 1) != 1:
        raise CombinationError("HiSparse speculates with speculative_eagle_topk 1 only")
    if args.speculative_algorithm is not None and args.speculative_adaptive:
        raise CombinationError("HiSparse does not go with adaptive speculation")
