"""Answers to recorded cases of the engine, in the shape of its own answers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from kvplan.errors import CombinationError
from kvplan.sizing.budget import Memory
from kvplan.sizing.host import size_host
from kvplan.sizing.plan import Plan, StagePlan
from kvplan.sizing.pool import StagePool, size_stage
from kvplan.sizing.reserves import reserves
from kvplan.sizing.resolve.resolve import resolve
from kvplan.sizing.resolved import Resolved
from kvplan.sizing.shapes import state_bytes_per_layer, state_shapes
from kvplan.sizing.shortage import Shortage
from kvplan.sizing.stage import Stage, make_stage
from kvplan.spec.gpu import GpuSpec
from kvplan.spec.hf.read import Origin, model_from_config
from kvplan.spec.model import Mha, ModelSpec
from kvplan.spec.server import ServerArgs

Case = dict[str, Any]


class Inputs(msgspec.Struct, frozen=True):
    """A case read into the values that sizing starts from."""

    model: ModelSpec
    draft: ModelSpec | None
    gpu: GpuSpec
    args: ServerArgs
    memory: Memory
    pp_rank: int


def inputs_of(case: Case) -> Inputs:
    """The model, card, arguments and memory of a recorded case."""
    draft = case.get("draft_config")
    gpu = case["gpu"]
    return Inputs(
        model=model_from_config(case["config"], Origin(name=case["model"])),
        draft=model_from_config(draft, Origin(name=case.get("draft") or "draft"))
        if draft
        else None,
        gpu=GpuSpec(name=gpu["name"], memory_mib=gpu["memory_mib"], sm=gpu["sm"]),
        args=msgspec.convert(case["args"], ServerArgs),
        memory=Memory(case["pre_load_gib"], case["post_load_gib"]),
        pp_rank=case["pp_rank"],
    )


class Sized(msgspec.Struct, frozen=True):
    """One recorded stage, sized."""

    inputs: Inputs
    resolved: Resolved
    stage: Stage
    pool: StagePool


def size_case(case: Case) -> Sized | Shortage:
    """Resolve and size a case; CombinationError where the engine refuses its settings."""
    given = inputs_of(case)
    resolved = resolve(given.args, given.model, given.gpu, given.draft)
    stage = make_stage(given.model, resolved, given.draft, given.pp_rank)
    pool = size_stage(stage, given.memory)
    if isinstance(pool, Shortage):
        return pool
    if resolved.pool_refusal is not None:
        raise CombinationError(resolved.pool_refusal)
    return Sized(given, resolved, stage, pool)


def answer(case: Case) -> dict[str, Any]:
    """What kvplan derives from a case of `golden/sizing*.jsonl`, in the engine's shape."""
    try:
        sized = size_case(case)
        if isinstance(sized, Shortage):
            return {"error": {"kind": "memory", "message": sized.problem}}
        host = size_host(sized.stage, sized.pool)
    except CombinationError as refusal:
        return {"error": {"kind": "combination", "message": str(refusal)}}
    reply: dict[str, Any] = {
        "resolved": resolved_answer(sized.resolved),
        "reserves": reserves_answer(sized.resolved),
        "model": model_answer(sized.stage),
        "pool": pool_answer(sized.pool),
    }
    if sized.resolved.hicache.enabled:
        reply["host"] = [msgspec.structs.asdict(each) | {"bytes": each.num_bytes} for each in host]
    return reply


def plan_case(case: Case) -> Plan | None:
    """A recorded stage as a plan of that one stage; None where the engine refuses the case."""
    try:
        sized = size_case(case)
    except CombinationError:
        return None
    if isinstance(sized, Shortage):
        return None
    given = sized.inputs
    return Plan(
        model=given.model,
        draft=given.draft,
        gpu=given.gpu,
        resolved=sized.resolved,
        reserves=reserves(sized.resolved),
        memory=given.memory,
        stages=(StagePlan(sized.stage, sized.pool, ()),),
    )


def resolved_answer(resolved: Resolved) -> dict[str, Any]:
    """The arguments that records compare, by the engine's names."""
    widths, spec = resolved.widths, resolved.speculation
    return {
        "mem_fraction_static": resolved.mem_fraction_static,
        "page_size": resolved.page_size,
        "chunked_prefill_size": resolved.chunked_prefill_size,
        "max_prefill_tokens": resolved.max_prefill_tokens,
        "max_running_requests_arg": resolved.max_running_requests,
        "decode_graph_max_bs": resolved.decode_graph_max_bs,
        "attention_backend": resolved.attention_backend,
        "kv_cache_dtype": resolved.kv_cache_dtype,
        "attn_tp_size": widths.attn_tp,
        "attn_dp_size": widths.attn_dp,
        "attn_dcp_size": widths.attn_dcp,
        "context_len": resolved.context_length,
        "speculative": {
            "algorithm": spec.algorithm,
            "num_steps": spec.num_steps,
            "eagle_topk": spec.eagle_topk,
            "num_draft_tokens": spec.num_draft_tokens,
        },
        "overlap_schedule": resolved.overlap_schedule,
        "radix_cache": resolved.radix_cache,
        "swa_full_tokens_ratio": resolved.swa_full_tokens_ratio,
        "mamba_full_memory_ratio": resolved.mamba_full_memory_ratio,
    }


def reserves_answer(resolved: Resolved) -> dict[str, Any]:
    needs = msgspec.structs.asdict(reserves(resolved))
    needs["req_to_token_row_width"] = needs.pop("row_width")
    return needs


def model_answer(stage: Stage) -> dict[str, Any]:
    """Shapes of the model on one rank; head dims are 0 for latent caches, which have none."""
    model, layers = stage.model, stage.layers
    attention = model.attention
    plain = isinstance(attention, Mha)
    sliding = model.sliding or model.compressed
    two = model.sliding is not None
    reply: dict[str, Any] = {
        "attention_arch": "MHA" if plain or model.compressed else "MLA",
        "num_hidden_layers": model.num_layers,
        "layers": [stage.span.start, stage.span.stop],
        "head_dim": attention.head_dim if isinstance(attention, Mha) else 0,
        "v_head_dim": attention.v_head_dim if isinstance(attention, Mha) else 0,
        "kv_heads_per_rank": stage.kv_heads,
        "is_hybrid_swa": sliding is not None,
        "sliding_window": sliding.window if sliding else None,
        "full_layers": len(layers.full) if two else None,
        "swa_layers": len(layers.sliding) if two else None,
        "mambaish": model.linear is not None,
        "draft_layers": stage.draft_layers.total if stage.draft_layers else None,
    }
    if model.linear is not None:
        widths, ssm = stage.resolved.widths, stage.resolved.mamba_ssm_dtype
        shapes = state_shapes(model.linear.state, widths.attn_tp)
        per_layer = state_bytes_per_layer(model.linear, widths.attn_tp, ssm)
        reply["mamba"] = {
            "cache_per_req": per_layer * len(model.linear.layers),
            "layers": len(model.linear.layers),
            "conv": [list(shape) for shape in shapes.conv],
            "temporal": list(shapes.temporal),
            "conv_dtype": f"torch.{model.linear.conv_dtype}",
            "temporal_dtype": f"torch.{ssm or model.linear.ssm_dtype}",
        }
    return reply


def pool_answer(pool: StagePool) -> dict[str, Any]:
    """The sizes that the engine logs."""
    two = pool.sliding or pool.compressed
    compressed = pool.compressed
    return {
        "budget_bytes": pool.budget.num_bytes,
        "cell_size": pool.cell.num_bytes,
        "max_total_num_tokens": pool.tokens,
        "full_max_total_num_tokens": two.full_tokens if two else None,
        "swa_max_total_num_tokens": two.sliding_tokens if two else None,
        "max_running_requests": pool.requests.max_running,
        "max_mamba_cache_size": pool.budget.state.slots if pool.budget.state else None,
        "c4_max_total_num_tokens": compressed.c4_tokens if compressed else 0,
        "c128_max_total_num_tokens": compressed.c128_tokens if compressed else 0,
        "c4_state_pool_size": compressed.c4_state_slots if compressed else 0,
        "c128_state_pool_size": pool.c128_state_slots,
    }


def tensors(case: Case) -> list[dict[str, Any]]:
    """The tensors of a case's pools, built on `meta`: count, shape, dtype, stride, view."""
    from kvplan.conformance_tensors import tensors as built

    return built(case)


def tensor_differences(case: Case, recorded: list[dict[str, Any]]) -> list[str]:
    """Where kvplan's tensors differ from the engine's in count of shape and dtype, views aside."""
    ours, theirs = shape_counts(tensors(case)), shape_counts(recorded)
    return [
        f"{dtype} {list(shape)}: {ours[shape, dtype]} instead of {theirs[shape, dtype]}"
        for shape, dtype in sorted(ours.keys() | theirs.keys())
        if ours[shape, dtype] != theirs[shape, dtype]
    ]


def shape_counts(entries: list[dict[str, Any]]) -> Counter[tuple[tuple[int, ...], str]]:
    counts: Counter[tuple[tuple[int, ...], str]] = Counter()
    for entry in entries:
        if not entry["view"]:
            counts[tuple(entry["shape"]), entry["dtype"]] += entry["count"]
    return counts
