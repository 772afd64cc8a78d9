"""The engine's own resolution of a launch: its rules in its order."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from kvplan.errors import CombinationError
from kvplan.sizing.provenance import GIVEN, PRESET, Origin, given
from kvplan.sizing.resolve import chunked_prefill, disaggregation, kv_dtype, mamba, notes, refusals
from kvplan.sizing.resolve.attention import Attention, settle_attention
from kvplan.sizing.resolve.block_drafts import draft_backend
from kvplan.sizing.resolve.graphs import graphs
from kvplan.sizing.resolve.hicache import hicache, host_form_problem
from kvplan.sizing.resolve.launch import Launch, launch_of
from kvplan.sizing.resolve.mem_fraction import after_backend, mem_fraction_static
from kvplan.sizing.resolve.numbers import Setting
from kvplan.sizing.resolve.parallel import Layout, parallel_layout
from kvplan.sizing.resolve.sliding import (
    full_tokens_ratio,
    ratio_stands,
    request_ring,
    two_pools,
)
from kvplan.sizing.resolve.speculative import running_requests, speculation
from kvplan.sizing.resolved import Hicache, Hisparse, ParallelWidths, Resolved, Speculation
from kvplan.spec.gpu import GpuSpec
from kvplan.spec.model import ModelSpec
from kvplan.spec.server import ServerArgs

Origins = dict[str, Origin]

EMBEDDING_CACHE_MIB = 100
FEATURE_CACHE_MIB = 1024
LAZY_NEEDS_OVERLAP = "mamba_radix_cache_strategy extra_buffer_lazy needs the overlapped schedule"

CONTEXT = Origin("default", "context-length", "the model's own")
NO_LIMIT = Origin("default", "max-total-tokens", "no limit")
OVERLAP_PIPELINE = Origin("derived", "overlap", "pipeline parallelism runs without it")
HISPARSE_OFF = Origin("default", "hisparse", "off")
HISPARSE = Origin("default", "hisparse", "ratio 2, buffers of 2 × top_k 2048")
STATE_SLOTS = Origin("derived", "state-slots", "from the state memory")
UNSHARDED = Origin("default", "kv-shards", "every rank keeps all its pages")
SEPARATE = Origin("default", "unified-memory", "a buffer a pool")
WIDTHS = Origin("default", "parallel", "one rank")


class Steps(msgspec.Struct, frozen=True):
    """What one prefill and decode step hold, and what the card keeps free for them."""

    chunk: int
    max_prefill: int
    decode_graph_max_bs: int
    mem_fraction: float


def resolve(
    args: ServerArgs,
    model: ModelSpec,
    gpu: GpuSpec,
    draft: ModelSpec | None = None,
    *,
    preset_fields: Collection[str] = (),
) -> Resolved:
    """What the engine makes of a launch, each value with its origin.

    `preset_fields` names the arguments that a preset gave. CombinationError where the engine
    refuses the settings together before it sizes anything; what it refuses afterwards is in
    `pool_refusal`.
    """
    launch = launch_of(args, model, gpu, draft)
    refusals.check_context(launch)
    layout = parallel_layout(launch)
    disaggregation.check_roles(args)
    origins: Origins = {
        "widths": widths_origin(args, layout),
        "context_length": given(args.context_length, default=CONTEXT),
    }
    steps = settle_steps(launch, layout, origins)
    attention = settle_attention(launch, layout, origins)
    fraction, origins["mem_fraction_static"] = after_backend(
        steps.mem_fraction,
        origins["mem_fraction_static"],
        attention.backends.base,
        args.context_length or model.context_length,
    )
    host, origins["hicache"] = hicache(launch, layout, attention.radix)
    chunk, origins["chunked_prefill_size"] = chunked_prefill.rank_chunk(
        launch, steps.chunk, layout.attn_dp, origins["chunked_prefill_size"]
    )
    if layout.pp > 1 and attention.overlap:
        attention = msgspec.structs.replace(attention, overlap=False)
        origins["overlap_schedule"] = OVERLAP_PIPELINE
    drafting, more = speculation(Setting(launch, layout, attention.backends, attention.page))
    origins.update(more)
    refusals.check_uniform_latents(launch, layout, chunk)
    refusals.check_rings(launch.model, drafting.max_draft_tokens)
    refusals.check_hisparse(launch, attention.radix)
    swap = hierarchical_sparse(launch, layout, attention.page, drafting, origins)
    unified_problem = unified_memory(launch, layout, attention, origins)
    shards, chunk, fraction = sharded(launch, layout, attention, chunk, fraction, origins)
    chunked_prefill.check_chunk(chunk, attention.page, args.disaggregation_mode or "null")
    steps = msgspec.structs.replace(steps, chunk=chunk, mem_fraction=fraction)
    resolved = assemble(launch, layout, steps, attention, drafting, host, swap, origins)
    if launch.args.enable_kv_cache_sharding:
        resolved = msgspec.structs.replace(
            resolved, kv_shards=shards, pool_refusal=resolved.pool_refusal or shard_problem(launch)
        )
    if unified_problem is not None:
        resolved = msgspec.structs.replace(
            resolved, pool_refusal=unified_problem, unified_memory=False
        )
    mark_presets(origins, preset_fields)
    return resolved


def hierarchical_sparse(
    launch: Launch, layout: Layout, page: int, drafting: Speculation, origins: Origins
) -> Hisparse | None:
    """HiSparse's own settings, None where it is off."""
    if not launch.args.enable_hisparse:
        origins["hisparse"] = HISPARSE_OFF
        return None
    from kvplan.sizing.resolve.hisparse import check_draft_tokens, hisparse

    origins["hisparse"] = given(launch.args.hisparse_config, default=HISPARSE)
    check_draft_tokens(drafting.num_draft_tokens)
    return hisparse(launch, layout, page)


def unified_memory(
    launch: Launch, layout: Layout, attention: Attention, origins: Origins
) -> str | None:
    """What refuses a unified pool once it is sized; CombinationError where that comes earlier."""
    asked = launch.args.enable_unified_memory
    origins["unified_memory"] = given(asked, default=SEPARATE)
    if not asked:
        return None
    from kvplan.sizing.resolve.unified import check_unified, pool_problem

    check_unified(launch, layout, attention.backends)
    return pool_problem(launch, two_pools(launch))


def sharded(
    launch: Launch,
    layout: Layout,
    attention: Attention,
    chunk: int,
    fraction: float,
    origins: Origins,
) -> tuple[int, int, float]:
    """Ranks that share one token space, and the chunk and fraction that this leaves."""
    asked = launch.args.enable_kv_cache_sharding
    origins["kv_shards"] = given(asked, default=UNSHARDED)
    if not asked:
        return 1, chunk, fraction
    from kvplan.sizing.resolve.sharding import check_sharding, shard_size, whole_chunk

    check_sharding(launch, layout, attention.backends, attention.page)
    chunk, fraction, moved = whole_chunk(launch, chunk, attention.page, fraction)
    if moved is not None:
        origins["chunked_prefill_size"] = moved
    return shard_size(launch, layout), chunk, fraction


def shard_problem(launch: Launch) -> str | None:
    """Why the pools have no sharded form, found once they are sized."""
    from kvplan.sizing.resolve.sharding import pool_problem

    return pool_problem(launch, two_pools(launch))


def settle_steps(launch: Launch, layout: Layout, origins: Origins) -> Steps:
    """Chunk, graphs and memory fraction, which the engine settles before anything else."""
    chunk, origins["chunked_prefill_size"] = chunked_prefill.asked_chunk(launch)
    limit, origins["max_prefill_tokens"] = chunked_prefill.max_prefill_tokens(launch)
    captured, origins["decode_graph_max_bs"] = graphs(launch, layout, chunk)
    fraction, origins["mem_fraction_static"] = mem_fraction_static(
        launch, layout, captured, chunk, limit
    )
    return Steps(chunk, limit, captured.decode_max_bs, fraction)


def assemble(
    launch: Launch,
    layout: Layout,
    steps: Steps,
    attention: Attention,
    drafting: Speculation,
    host: Hicache,
    swap: Hisparse | None,
    origins: Origins,
) -> Resolved:
    """The settled parts and the rules that read them all, as one value."""
    args = launch.args
    running, origins["max_running_requests"] = running_requests(launch)
    extra_slots, origins["decode_extra_slots"] = disaggregation.decode_extra_slots(args, layout)
    dtype, recipe, origins["kv_cache_dtype"] = kv_dtype.storage(
        launch, attention.dtype, origins["kv_cache_dtype"]
    )
    ratio, origins["swa_full_tokens_ratio"] = full_tokens_ratio(launch)
    state_ratio, origins["mamba_full_memory_ratio"] = mamba.memory_ratio(launch)
    origins["max_total_tokens"] = given(args.max_total_tokens, default=NO_LIMIT)
    origins["max_mamba_cache_size"] = given(args.max_mamba_cache_size, default=STATE_SLOTS)
    reader = draft_backend(launch, drafting.algorithm, attention.backends)
    draft_dtype = None
    if drafting.algorithm in ("DFLASH", "DSPARK"):
        draft_dtype = kv_dtype.draft_storage(launch, attention.dtype, dtype, reader)
    pools = two_pools(launch)
    ring, origins["request_ring"] = request_ring(launch)
    problem = host_form_problem(launch, recipe, attention.page, pools) if host.enabled else None
    prefill, decode = attention.backends.pair
    return Resolved(
        asked=args,
        widths=ParallelWidths(
            tp=layout.tp,
            pp=layout.pp,
            attn_tp=layout.attn_tp,
            attn_dp=layout.attn_dp,
            attn_cp=layout.attn_cp,
            attn_dcp=layout.dcp,
            replicas=layout.replicas,
            pp_partition=args.pp_layer_partition,
        ),
        speculation=drafting,
        context_length=args.context_length or launch.model.context_length,
        page_size=attention.page,
        mem_fraction_static=steps.mem_fraction,
        chunked_prefill_size=steps.chunk,
        max_prefill_tokens=steps.max_prefill,
        max_running_requests=running,
        max_total_tokens=args.max_total_tokens,
        decode_graph_max_bs=steps.decode_graph_max_bs,
        attention_backend=attention.backends.base,
        prefill_attention_backend=prefill,
        decode_attention_backend=decode,
        kv_cache_dtype=dtype,
        kv_recipe=recipe,
        radix_cache=attention.radix,
        overlap_schedule=attention.overlap,
        swa_full_tokens_ratio=ratio,
        swa_ratio_given=ratio_stands(origins["swa_full_tokens_ratio"]),
        mamba_full_memory_ratio=state_ratio,
        max_mamba_cache_size=args.max_mamba_cache_size,
        mamba_strategy=attention.strategy,
        mamba_overlap_asked=not args.disable_overlap_schedule,
        mamba_ssm_dtype=args.mamba_ssm_dtype,
        disaggregation_mode=args.disaggregation_mode or "null",
        decode_extra_slots=extra_slots,
        dsa_raw_layout=attention.raw_layout,
        two_pools=pools,
        draft_attention_backend=reader,
        draft_kv_cache_dtype=draft_dtype,
        gpu_sm=launch.gpu.sm,
        multimodal_reservation_mib=multimodal_mib(launch),
        hicache=host,
        hisparse=swap,
        request_ring=ring,
        uniform_latents=launch.model.compressed is not None and args.dsv4_attn_backend == "trtllm",
        unified_memory=notes.unified_memory(launch),
        pool_refusal=lazy_problem(attention, drafting) or problem,
        not_modelled=notes.not_modelled(launch),
        warnings=notes.warnings(launch, attention),
        provenance=origins,
    )


def lazy_problem(attention: Attention, drafting: Speculation) -> str | None:
    """Lazy state buffers need overlap: found while slots are counted, at once under speculation."""
    if attention.strategy != "extra_buffer_lazy" or attention.overlap:
        return None
    if drafting.algorithm is not None:
        raise CombinationError(LAZY_NEEDS_OVERLAP, hint="use extra_buffer")
    return LAZY_NEEDS_OVERLAP


def widths_origin(args: ServerArgs, layout: Layout) -> Origin:
    """attn_tp is what attention DP and CP leave of tp."""
    if args.tp_size is None:
        return WIDTHS
    operands = (layout.tp, layout.attn_dp, layout.attn_cp)
    return Origin("derived", "parallel", "attn_tp = {0} // {1} // {2}", operands)


def multimodal_mib(launch: Launch) -> int:
    """MiB that image serving takes after the pools: the embedding cache, a GPU feature pool."""
    if not launch.multimodal:
        return 0
    on_gpu = launch.args.mm_feature_transport in ("cuda_ipc", "cuda_vmm")
    return EMBEDDING_CACHE_MIB + (FEATURE_CACHE_MIB if on_gpu else 0)


def mark_presets(origins: Origins, preset_fields: Collection[str]) -> None:
    """Say which of the given values a preset gave."""
    for name in preset_fields:
        if origins.get(name) is GIVEN:
            origins[name] = PRESET
