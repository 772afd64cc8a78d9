"""The host tier that a launch asks for, and the caches that have no host form."""

from __future__ import annotations

from kvplan.errors import CombinationError
from kvplan.sizing.provenance import GIVEN, Origin
from kvplan.sizing.resolve.launch import Launch
from kvplan.sizing.resolve.parallel import Layout
from kvplan.sizing.resolved import Hicache, KvRecipe

CACHE_RATIO = 2.0
BUFFER_RATIO = 1.2
MXFP8_HOST_PAGE = 128
SCALED_CACHES = ("mxfp8", "nvfp4", "fp4_mx_block16")

OFF = Hicache()


def hicache(launch: Launch, layout: Layout, radix: bool) -> tuple[Hicache, Origin]:
    """Host tier of a launch; CombinationError where the engine refuses it."""
    args = launch.args
    enabled, backs_up = bool(args.enable_hierarchical_cache), backs_up_retractions(launch, layout)
    if not enabled and not backs_up:
        return OFF, Origin("default", "hicache", "off")
    if enabled:
        check_hicache(launch, layout, radix)
    buffer_only = args.hicache_host_memory_mode == "buffer_only"
    ratio, origin = args.hicache_ratio, GIVEN
    if not enabled:
        origin = Origin("default", "hicache", "off; a host pool for retracted requests")
    elif ratio is None:
        ratio = BUFFER_RATIO if buffer_only else CACHE_RATIO
        if not args.hicache_size:
            origin = Origin("default", "hicache", "ratio {0}", (ratio,))
    return Hicache(
        enabled=enabled,
        backs_up=backs_up,
        ratio=ratio,
        ratio_given=args.hicache_ratio is not None,
        size_gb=args.hicache_size or 0,
        buffer_only=buffer_only,
        ranks_per_host=max(1, layout.tp * layout.pp // (args.nnodes or 1)),
        host_memory_fraction=args.hicache_host_memory_fraction or OFF.host_memory_fraction,
    ), origin


def backs_up_retractions(launch: Launch, layout: Layout) -> bool:
    """Whether a decode node keeps the KV of retracted requests in a host pool.

    The engine's choice where the launch makes none: plain K and V, on NVIDIA cards, without a
    radix cache on the node.
    """
    args, model = launch.args, launch.model
    asked = args.disaggregation_decode_retraction_backup
    if args.disaggregation_mode != "decode" or asked in ("cpu_tensor", "none"):
        return False
    plain = not launch.mla and model.linear is None and model.compressed is None
    plain = plain and model.sparse is None and args.kv_cache_dtype not in SCALED_CACHES
    slides = model.sliding is not None and len(model.sliding.layers) == model.num_layers
    if not plain or slides or (args.enable_unified_memory and model.sliding is not None):
        return False
    if asked == "host_pool":
        return True
    return (
        launch.gpu.sm is not None
        and layout.dcp == 1
        and not args.disaggregation_decode_enable_radix_cache
    )


def check_hicache(launch: Launch, layout: Layout, radix: bool) -> None:
    """Refuse a host tier beside settings that it does not serve."""
    args = launch.args
    if not radix:
        raise CombinationError(
            "enable_hierarchical_cache needs the radix cache",
            hint="drop disable_radix_cache, or the host tier",
        )
    if args.hicache_host_memory_mode == "buffer_only":
        if args.hicache_storage_backend is None:
            raise CombinationError("buffer_only needs a hicache_storage_backend")
        if args.disaggregation_mode == "decode":
            raise CombinationError("buffer_only does not go with a decode node")
    if args.enable_int8_mamba_checkpoint:
        raise CombinationError("enable_int8_mamba_checkpoint does not go with a host tier")
    if layout.dcp > 1:
        if launch.dsa:
            raise CombinationError("sparse attention with dcp_size > 1 takes no host tier")
        if args.speculative_algorithm not in (None, "DSPARK"):
            raise CombinationError("a host tier with dcp_size > 1 speculates with DSPARK only")
        if not launch.mla:
            raise CombinationError("a host tier with dcp_size > 1 serves latent attention only")


def host_form_problem(
    launch: Launch, recipe: KvRecipe | None, page_size: int, two_pools: bool
) -> str | None:
    """Why a block-scaled cache cannot be mirrored on the host; None if it can."""
    if recipe is None or not has_scales(launch, recipe, two_pools):
        return None
    if recipe == "mxfp8" and page_size == MXFP8_HOST_PAGE:
        return None
    if recipe == "mxfp8":
        return (
            f"an mxfp8 cache has a host form at page size {MXFP8_HOST_PAGE} only, not {page_size}"
        )
    return f"a {recipe} cache has no host form"


def has_scales(launch: Launch, recipe: KvRecipe, two_pools: bool) -> bool:
    """Whether the pool keeps scales beside its data."""
    model = launch.model
    if recipe == "mxfp8":
        return not launch.mla
    return not (two_pools and model.sliding is not None) and not (
        launch.mla and model.linear is not None
    )
