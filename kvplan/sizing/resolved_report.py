"""What the engine made of each argument, as plain values with their origin."""

from __future__ import annotations

from typing import Any

import msgspec

from kvplan.sizing.resolved import Resolved

NOT_ARGUMENTS = frozenset({"provenance", "warnings", "not_modelled", "pool_refusal", "gpu_sm"})
# values that the engine settles together with another one
PART_OF = {
    "decode_attention_backend": "attention_backend",
    "prefill_attention_backend": "attention_backend",
    "draft_attention_backend": "speculation",
    "draft_kv_cache_dtype": "speculation",
    "dsa_raw_layout": "attention_backend",
    "kv_recipe": "kv_cache_dtype",
    "mamba_overlap_asked": "overlap_schedule",
    "mamba_ssm_dtype": "mamba_strategy",
    "swa_ratio_given": "swa_full_tokens_ratio",
    "two_pools": "swa_full_tokens_ratio",
    "uniform_latents": "attention_backend",
}


def resolved_report(resolved: Resolved) -> dict[str, Any]:
    """Each resolved argument: its value and where it came from."""
    origins = resolved.provenance
    report = {}
    for name in resolved.__struct_fields__:
        origin = origins.get(PART_OF.get(name, name))
        if origin is None or name in NOT_ARGUMENTS:
            continue
        value = getattr(resolved, name)
        plain = msgspec.structs.asdict(value) if isinstance(value, msgspec.Struct) else value
        report[name] = {"value": plain, "from": str(origin)}
    return report
