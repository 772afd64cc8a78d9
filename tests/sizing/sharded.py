"""Engine settings that shard the KV cache, and a model whose context spans one page a rank."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.sizing.resolve.launches import sparse_latent

SHARDED: dict[str, Any] = {
    "enable_kv_cache_sharding": True,
    "disaggregation_mode": "prefill",
    "page_size": 64,
    "context_length": 1000,
    "chunked_prefill_size": 8192,
    "tp_size": 4,
}
STRIPED = {"enable_prefill_cp": True, "attn_cp_size": 2, "cp_strategy": "zigzag"}
GLM = msgspec.structs.replace(
    sparse_latent("GlmMoeDsaForCausalLM", mtp_layers=1), context_length=1000
)
GLM_ARGS = {
    **SHARDED,
    "enable_prefill_cp": True,
    "attn_cp_size": 4,
    "cp_strategy": "interleave",
    "dsa_prefill_backend": "trtllm",
    "dsa_decode_backend": "trtllm",
}
