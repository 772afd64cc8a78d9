"""KV cache sharding: pages of one token space over ranks that would hold the same KV."""

from __future__ import annotations

from kvplan.errors import CombinationError
from kvplan.sizing.provenance import Origin
from kvplan.sizing.resolve.backends import Backends
from kvplan.sizing.resolve.launch import Launch
from kvplan.sizing.resolve.mem_fraction import ACTIVATION_MIB_PER_TOKEN, LEAST_ACTIVATION_TOKENS
from kvplan.sizing.resolve.parallel import Layout
from kvplan.units import ceil_page

FLAG = "enable_kv_cache_sharding"
TRANSFERS = frozenset({None, "mooncake", "nixl"})
GLM_DSA = "GlmMoeDsaForCausalLM"


def shard_size(launch: Launch, layout: Layout) -> int:
    """Ranks that pages are spread over: attention CP, else attention TP of latent caches."""
    if layout.attn_cp > 1:
        return layout.attn_cp
    return layout.attn_tp if launch.mla else 1


def check_sharding(launch: Launch, layout: Layout, backends: Backends, page: int) -> None:
    """CombinationError where the engine does not shard."""
    args = launch.args
    if args.disaggregation_mode != "prefill":
        raise CombinationError(f"{FLAG} serves prefill nodes only", hint="set disaggregation_mode")
    for name, asked in (
        ("enable_unified_memory", args.enable_unified_memory),
        ("dcp_size > 1", layout.dcp > 1),
        ("enable_hisparse", args.enable_hisparse),
        ("enable_two_batch_overlap", args.enable_two_batch_overlap),
        ("hicache_storage_backend", args.hicache_storage_backend),
    ):
        if asked:
            raise CombinationError(f"{FLAG} does not go with {name}")
    if args.speculative_algorithm is not None:
        check_draft(launch)
    check_backend(launch, layout, backends, page)
    if args.disaggregation_transfer_backend not in TRANSFERS:
        raise CombinationError(f"{FLAG} transfers through mooncake or nixl only")
    check_ranks(launch, layout)
    if page <= 1:
        raise CombinationError(f"{FLAG} needs pages", hint="set page_size 64")


def check_draft(launch: Launch) -> None:
    """Only GLM's own single MTP layer drafts beside sharded pages."""
    args, model = launch.args, launch.model
    single = args.speculative_eagle_topk == 1 and not args.enable_multi_layer_eagle
    fits = model.architecture == GLM_DSA and model.mtp_layers == 1 and single
    if args.speculative_algorithm not in ("EAGLE", "NEXTN") or not fits:
        raise CombinationError(f"{FLAG} speculates with GLM's own MTP layer and topk 1 only")


def check_backend(launch: Launch, layout: Layout, backends: Backends, page: int) -> None:
    """Prefill kernels that read a gathered prefix."""
    prefill, args = backends.pair[0], launch.args
    if launch.dsa:
        striped = args.cp_strategy == "interleave" and layout.attn_cp > 1 and layout.pp == 1
        if prefill != "dsa" or not args.enable_prefill_cp or not striped:
            raise CombinationError(
                f"{FLAG} of sparse attention needs interleaved prefill context parallelism"
            )
        kernels = {args.dsa_prefill_backend, args.dsa_decode_backend}
        if kernels - {"trtllm", None} or page != 64 or launch.model.indexer is None:
            raise CombinationError(f"{FLAG} of sparse attention needs trtllm kernels, page_size 64")
        if launch.model.indexer.kpool != 1:
            raise CombinationError(f"{FLAG} takes no pooled index keys")
        return
    if prefill == "fa3":
        return
    if prefill != "trtllm_mla" or not launch.mla or layout.attn_cp > 1:
        raise CombinationError(
            f"{FLAG} prefills on fa3, or on trtllm_mla without context parallelism, not {prefill}"
        )


def check_ranks(launch: Launch, layout: Layout) -> None:
    """Latent caches repeat over attention TP, grouped ones over attention CP."""
    if not launch.mla:
        if not launch.args.enable_prefill_cp or layout.attn_cp <= 1:
            raise CombinationError(
                f"{FLAG} of grouped-query models needs prefill context parallelism"
            )
    elif layout.attn_cp <= 1 and (layout.attn_dp > 1 or layout.tp <= 1):
        raise CombinationError(f"{FLAG} of latent caches needs tp_size > 1 without DP attention")


def pool_problem(launch: Launch, two_pools: bool) -> str | None:
    """Pools without a sharded form, found once they are sized."""
    model, args = launch.model, launch.args
    sliding = model.sliding is not None and two_pools
    other = model.linear or model.sparse or model.compressed
    if sliding or other or args.kv_cache_dtype in ("mxfp8", "nvfp4", "fp4_mx_block16"):
        return f"{FLAG} has no form for the pools of {model.architecture}"
    return None


def whole_chunk(
    launch: Launch, chunk: int, page: int, fraction: float
) -> tuple[int, float, Origin | None]:
    """A chunk in whole pages, what it leaves of a fraction by default, and why it moved."""
    if chunk <= 0:
        raise CombinationError(f"{FLAG} needs a chunked prefill")
    rounded = ceil_page(chunk, page)
    if rounded == chunk:
        return chunk, fraction, None
    least = LEAST_ACTIVATION_TOKENS
    more = ACTIVATION_MIB_PER_TOKEN * (max(rounded, least) - max(chunk, least))
    if launch.args.mem_fraction_static is None:
        fraction -= more / launch.gpu.memory_mib
    origin = Origin("derived", "chunk-of-shards", "{0} in pages of {1}", (chunk, page))
    return rounded, fraction, origin
