"""Launches of published logs that a plan does not give, and the cause of each figure that differs."""

from __future__ import annotations

from typing import Any

from tests.public_logs import CASES, QWEN_35_9B, Case

PACKED = {"dsa_prefill_backend": "flashmla_auto", "dsa_decode_backend": "flashmla_kv"}
# beside the records that are tests of the sizing: patched builds, faults of a version, refusals
OTHERS = {
    "sgl-006": Case("deepseek-r1", "b200"),
    "sgl-007": Case("ling-3.0-flash", "gb10"),
    "sgl-010": Case(QWEN_35_9B, "gb10"),
    "sgl-020": Case("glm-5-fp8", "mi355x", PACKED),
    "sgl-021": Case("deepseek-v4-flash-fp8", "mi300x", {"swa_full_tokens_ratio": 0.8, "mem_fraction_static": 0.88, "max_running_requests": 256}),
    "sgl-022": Case("deepseek-v4-flash", "mi300x", {"mem_fraction_static": 0.88}),
    "sgl-028": Case("glm-4.7-flash", "rtx-5090"),
    "sgl-031": Case("gemma-4-26b-a4b", "gb10", {"enable_multimodal": False}),
    "sgl-045": Case("qwen3.6-27b-nvfp4", "a100-80gb", {"speculative_algorithm": "EAGLE", "speculative_num_steps": 5, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 6}),
    "sgl-055": Case("deepseek-v3.2", "b200", {"kv_cache_dtype": "fp8_e4m3", **PACKED}),
    "sgl-057": Case("mimo-v2-flash", "h200"),
    "sgl-058": Case("deepseek-v4-pro", "h200"),
    "sgl-173": Case("llama-3.1-8b", "mi300x"),
    "sgl-177": Case("qwen3-0.6b", "mi355x"),
    "sgl-197": Case("ling-3.0-flash", "gb10"),
}  # fmt: skip
ALL_CASES = CASES | OTHERS

SECOND_READING = {"max_total_num_tokens": "second_reading"}
OPEN = {"max_total_num_tokens": "open_fraction"}
OPEN_HYBRID = OPEN | {"max_mamba_cache_size": "open_fraction"}
DEFAULT_REQUESTS = {"max_running_requests": "other_default"}
# record -> figure that differs -> its cause; a second reading alone is no difference
CAUSES: dict[str, dict[str, str]] = {
    "sgl-003": DEFAULT_REQUESTS,
    "sgl-006": {"page_size": "page_size"},
    "sgl-007": {"max_total_num_tokens": "patched_build", "max_mamba_cache_size": "patched_build", "page_size": "page_size"},
    "sgl-010": {"max_total_num_tokens": "state_ratio"},
    "sgl-020": {"max_total_num_tokens": "undercounted", "page_size": "page_size"},
    "sgl-021": {"max_total_num_tokens": "other_version", "bytes_per_full_token": "other_version", "available_bytes_gib": "second_reading"},
    "sgl-022": {"max_total_num_tokens": "other_version", "bytes_per_full_token": "other_version", "c128_state_fixed_gib": "follows_requests", "max_running_requests": "other_default", "chunked_prefill_size": "other_default"},
    "sgl-031": {"max_total_num_tokens": "other_process"},
    "sgl-042": OPEN_HYBRID,
    "sgl-045": {"ssm_state_gib": "state_dtype", "intermediate_ssm_gib": "state_dtype"},
    "sgl-048": OPEN,
    "sgl-055": {"kv_gib": "index_keys_left_out"},
    "sgl-057": {"swa_layer_tokens": "swa_ratio", "swa_size": "swa_ratio", "swa_k_gib": "swa_ratio", "swa_v_gib": "swa_ratio", "swa_pool_gib": "swa_ratio"},
    "sgl-160": DEFAULT_REQUESTS,
    "sgl-161": DEFAULT_REQUESTS,
    "sgl-170": OPEN,
    "sgl-173": OPEN,
    "sgl-174": DEFAULT_REQUESTS,
    "sgl-195": OPEN_HYBRID,
    "sgl-197": {"max_total_num_tokens": "state_ratio"},
    **dict.fromkeys(
        [f"sgl-{number:03}" for number in (40, 41, 43, 50, 101, 103, 106, 109, 111, 112, 113, 114, 121, 122, 140, 143, 146)],
        SECOND_READING,
    ),
}  # fmt: skip
REFUSED = {
    "sgl-028": "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.85. Raise --mem-fraction-static above 1.000 (minimum viable = 1 - available/pre = 1.0000).",
    "sgl-058": "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.88. Raise --mem-fraction-static above 0.912 (minimum viable = 1 - available/pre = 0.9112).",
}


def figures_of(record: dict[str, Any]) -> dict[str, Any]:
    """The record's figures by the reader's names, the two pools by their older keys too."""
    from tests.guard.log_writer import published

    observed, found = record["observed"], published(record)
    for name, key in (("full_layer_tokens", "full_tokens"), ("swa_layer_tokens", "swa_tokens")):
        if name not in found and isinstance(observed.get(key), int):
            found[name] = observed[key]
    return found
