"""How many tokens the sliding layers hold for one of the full layers."""

from __future__ import annotations

from typing import Literal

from kvplan.errors import CombinationError
from kvplan.sizing.provenance import GIVEN, Origin
from kvplan.sizing.resolve import architectures as arch
from kvplan.sizing.resolve.launch import Launch

DEFAULT_RATIO = 0.8
SMALL_RATIO = 0.1
GFX95 = "MI35"  # cards whose fp8 the rings can store


def full_tokens_ratio(launch: Launch) -> tuple[float, Origin]:
    """swa_full_tokens_ratio; DeepSeek-V4 and Inkling need few sliding tokens."""
    args, model = launch.args, launch.model
    if model.architecture in arch.STEP3P and args.enable_hierarchical_cache:
        return 1.0, Origin("default", "swa-ratio-by-model", "HiCache keeps one pool")
    if args.swa_full_tokens_ratio is not None:
        return args.swa_full_tokens_ratio, GIVEN
    if model.compressed is not None or model.architecture in arch.INKLING:
        return SMALL_RATIO, Origin("default", "swa-ratio-by-model")
    return DEFAULT_RATIO, Origin("default", "swa-ratio")


def two_pools(launch: Launch) -> bool:
    """Whether sliding layers get a pool of their own."""
    args = launch.args
    if launch.model.architecture in arch.STEP3P and args.enable_hierarchical_cache:
        return False
    return not args.disable_hybrid_swa_memory


def ratio_stands(origin: Origin) -> bool:
    """Whether launch or model set the ratio, which the engine then takes for the operator's."""
    return origin.rule != "swa-ratio"


def request_ring(launch: Launch) -> tuple[Literal["bf16", "fp8"] | None, Origin]:
    """DeepSeek-V4's rings on AMD, which an environment variable turns on, and what their rows store."""
    args = launch.args
    if launch.model.compressed is None or launch.family != "hip" or not args.dsv4_unified_kv:
        return None, Origin("default", "request-ring", "a sliding pool of pages")
    if args.enable_hisparse:
        raise CombinationError("HiSparse does not go with DeepSeek-V4's unified KV")
    fp8 = bool(args.dsv4_unified_kv_fp8) and launch.gpu.name.startswith(GFX95)
    disaggregated = args.disaggregation_mode in ("prefill", "decode")
    if fp8 and disaggregated and (args.pp_size or 1) > 1:
        raise CombinationError(
            "fp8 rows of DeepSeek-V4's unified KV do not go with disaggregation in stages",
            hint="set pp_size 1",
        )
    return ("fp8" if fp8 else "bf16"), GIVEN
