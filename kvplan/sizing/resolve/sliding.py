"""How many tokens the sliding layers hold for one of the full layers."""

from __future__ import annotations

from kvplan.sizing.provenance import GIVEN, Origin
from kvplan.sizing.resolve import architectures as arch
from kvplan.sizing.resolve.launch import Launch

DEFAULT_RATIO = 0.8
SMALL_RATIO = 0.1


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
