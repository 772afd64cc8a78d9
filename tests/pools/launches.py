"""Launches that no record covers, by the form of their pools: each must build from its plan."""

from __future__ import annotations

import json
from typing import Any

from kvplan.sizing.plan import Plan
from kvplan.spec.gpu import GpuSpec
from kvplan.spec.model import Indexer, Mha, ModelSpec, Sliding, Sparse
from tests.sizing.launched import planned
from tests.sizing.resolve.launches import (
    B200,
    EAGLE,
    H100,
    MI300X,
    compressed,
    dense,
    hybrid,
    kimi,
    latent,
    sparse_latent,
)
from tests.sizing.sharded import GLM, GLM_ARGS, SHARDED, STRIPED

Launch = tuple[ModelSpec, GpuSpec, dict[str, Any]]

MI355X = GpuSpec(name="MI355X", memory_mib=294900)
SWAPS = {
    "enable_hisparse": True,
    "disable_radix_cache": True,
    "hisparse_config": json.dumps({"host_to_device_ratio": 3}),
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
SHARED_TOPK = sparse_latent(indexer=Indexer(head_dim=128, shared_topk_layers=tuple(range(1, 32))))
HISPARSE: dict[str, Launch] = {
    "hisparse dsa": (sparse_latent(), H100, SWAPS),
    "hisparse dsa fp8": (SHARED_TOPK, H100, {**SWAPS, "kv_cache_dtype": "fp8_e4m3"}),
    "hisparse dsa eagle": (sparse_latent(mtp_layers=1), H100, {**SWAPS, **EAGLE}),
    "hisparse minimax": (MINIMAX, H100, {**SWAPS, "tp_size": 8, "page_size": 64}),
    "hisparse dsv4": (compressed(), H100, SWAPS),
}

ONE_BUFFER = {"enable_unified_memory": True}
GPT_OSS = dense(
    "GptOssForCausalLM",
    attention=Mha(num_kv_heads=8, head_dim=64, v_head_dim=64),
    sliding=Sliding(
        window=127, layers=tuple(range(0, 32, 2)), num_kv_heads=8, head_dim=64, v_head_dim=64
    ),
)
NARROW = dense(
    "GptOssForCausalLM",
    attention=Mha(num_kv_heads=1, head_dim=24, v_head_dim=16),
    sliding=Sliding(
        window=127, layers=tuple(range(3, 32, 4)), num_kv_heads=2, head_dim=16, v_head_dim=8
    ),
)
UNIFIED: dict[str, Launch] = {
    "unified sliding": (GPT_OSS, H100, ONE_BUFFER),
    "unified sliding paged": (GPT_OSS, H100, {**ONE_BUFFER, "page_size": 16, "tp_size": 4}),
    "unified sliding fp8": (GPT_OSS, H100, {**ONE_BUFFER, "kv_cache_dtype": "fp8_e4m3"}),
    "unified sliding capped": (GPT_OSS, H100, {**ONE_BUFFER, "max_total_tokens": 1000}),
    "unified sliding uneven": (NARROW, H100, ONE_BUFFER),
    "unified sliding stages": (GPT_OSS, H100, {**ONE_BUFFER, "pp_size": 2, "tp_size": 2}),
    "unified states": (hybrid(), H100, {**ONE_BUFFER, "max_mamba_cache_size": 100}),
    "unified states split": (hybrid(), H100, {**ONE_BUFFER, "tp_size": 2}),
    "unified kimi": (kimi(), H100, {**ONE_BUFFER, "page_size": 64}),
    "unified kimi context": (
        kimi(),
        H100,
        {
            **ONE_BUFFER,
            "page_size": 64,
            "dcp_size": 2,
            "tp_size": 2,
            "attention_backend": "flashinfer",
        },
    ),
    "unified decode node": (hybrid(), H100, {**ONE_BUFFER, "disaggregation_mode": "decode"}),
}

SHARDED_LAUNCHES: dict[str, Launch] = {
    "sharded latent": (latent("DeepseekV2ForCausalLM"), H100, SHARDED),
    "sharded latent fp8": (
        latent("DeepseekV2ForCausalLM"), H100, {**SHARDED, "kv_cache_dtype": "fp8_e4m3"}
    ),
    "sharded latent stages": (latent("DeepseekV2ForCausalLM"), H100, {**SHARDED, "pp_size": 2}),
    "sharded dense": (dense(), H100, {**SHARDED, **STRIPED}),
    "sharded dsa": (GLM, B200, GLM_ARGS),
    "sharded dsa eagle": (GLM, B200, {**GLM_ARGS, **EAGLE}),
}  # fmt: skip

RINGS = {"dsv4_unified_kv": True, "max_running_requests": 9}
RINGED: dict[str, Launch] = {
    "ring bf16": (compressed(), MI300X, RINGS),
    "ring fp8": (compressed(), MI355X, {**RINGS, "dsv4_unified_kv_fp8": True}),
    "ring bf16 eagle": (compressed(), MI300X, {**RINGS, **EAGLE}),
    "ring fp8 eagle": (compressed(), MI355X, {**RINGS, **EAGLE, "dsv4_unified_kv_fp8": True}),
    "ring stages": (compressed(), MI300X, {**RINGS, "pp_size": 2, "tp_size": 2}),
    "ring decode node": (compressed(), MI300X, {**RINGS, "disaggregation_mode": "decode"}),
}
UNIFORM: dict[str, Launch] = {
    "uniform": (compressed(), B200, {"dsv4_attn_backend": "trtllm"}),
    "uniform eagle": (compressed(), B200, {"dsv4_attn_backend": "trtllm", **EAGLE}),
    "uniform stages": (compressed(), B200, {"dsv4_attn_backend": "trtllm", "pp_size": 2}),
}
LAUNCHES = HISPARSE | UNIFIED | SHARDED_LAUNCHES | RINGED | UNIFORM


CAPS: dict[str, Any] = {
    "max_total_tokens": 20000,
    "max_running_requests": 4,
    "context_length": 1000,
}


def plan_of(name: str, *, capped: bool = False) -> Plan:
    """The plan of one of these launches; capped to a few megabytes once it is scaled down."""
    model, gpu, args = LAUNCHES[name]
    if capped:
        states = {} if model.linear is None else {"max_mamba_cache_size": 20}
        args = {**args, **CAPS, **states}
    return planned(model, gpu, **args)
