"""The figures that the server of a plan would log, by the names that its log has for them."""

from __future__ import annotations

from collections.abc import Iterable

from kvplan.sizing.capacities import HostPool
from kvplan.sizing.compressed import c128_state_bytes, expected_requests
from kvplan.sizing.draft_tensors import draft_tensors
from kvplan.sizing.plan import Plan, StagePlan
from kvplan.sizing.pool import StagePool
from kvplan.sizing.tensor import TensorPlan
from kvplan.sizing.tensors import stage_tensors
from kvplan.units import GIB

Figures = dict[str, int | float]

DECIMAL_GB = 10**9
# pool and first word of a tensor's name -> the figure that counts it
SIZES = {
    ("kv", "k"): "k_gib",
    ("kv", "v"): "v_gib",
    ("kv", "latent"): "kv_gib",
    ("kv", "index"): "kv_gib",
    ("index", "index_k"): "k_gib",
    ("index", "index_v"): "v_gib",
    ("full", "k"): "full_k_gib",
    ("full", "v"): "full_v_gib",
    ("sliding", "k"): "swa_k_gib",
    ("sliding", "v"): "swa_v_gib",
    ("state", "conv"): "conv_state_gib",
    ("state", "temporal"): "ssm_state_gib",
    ("state", "snapshot_temporal"): "intermediate_ssm_gib",
    ("state", "snapshot_conv"): "intermediate_conv_gib",
    ("draft KV", "k"): "k_gib",
    ("draft KV", "v"): "v_gib",
    ("draft KV", "latent"): "kv_gib",
    ("draft KV", "index"): "kv_gib",
}
HOST_FIGURES = {
    "kv": ("host_tokens", "host_gb"),
    "state": ("host_state_slots", "host_state_gb"),
}


def target_figures(plan: Plan, planned: StagePlan) -> Figures:
    """What a rank of one stage logs of the target: limits, tokens, and GiB of each pool."""
    pool, resolved = planned.pool, plan.resolved
    found: Figures = {
        "max_total_num_tokens": plan.tokens,
        "max_running_requests": plan.max_running_requests,
        "chunked_prefill_size": resolved.chunked_prefill_size,
        "max_prefill_tokens": resolved.max_prefill_tokens,
        "context_len": resolved.context_length,
    }
    found |= pool_tokens(pool)
    found |= tensor_figures(stage_tensors(plan, planned))
    if pool.sliding is not None:
        found["swa_pool_gib"] = sum(
            found.get(name, 0) for name in ("full_k_gib", "full_v_gib", "swa_k_gib", "swa_v_gib")
        )
    if pool.budget.state is not None:
        found["max_mamba_cache_size"] = pool.budget.state.slots
    if pool.compressed is not None:
        found |= compressed_figures(planned)
    return found | host_figures(planned.host)


def draft_figures(plan: Plan, planned: StagePlan) -> Figures:
    """What the same rank logs of the draft's own pool."""
    return tensor_figures(draft_tensors(plan, planned))


def tensor_figures(tensors: Iterable[TensorPlan]) -> Figures:
    """GiB of each logged kind of tensor."""
    sums: Figures = {}
    for tensor in tensors:
        name = size_of(tensor)
        if name is not None:
            sums[name] = sums.get(name, 0) + tensor.num_bytes / GIB
    return sums


def size_of(tensor: TensorPlan) -> str | None:
    """The figure that a tensor belongs to: scales and workspaces count with K or V."""
    return SIZES.get((tensor.pool, tensor.name)) or SIZES.get(
        (tensor.pool, tensor.name.partition("_")[0])
    )


def pool_tokens(pool: StagePool) -> Figures:
    """Tokens of the pools of one stage."""
    if pool.sliding is not None:
        full, slide = pool.sliding.full_tokens, pool.sliding.sliding_tokens
        return {
            "full_layer_tokens": full,
            "full_size": full,
            "swa_layer_tokens": slide,
            "swa_size": slide,
        }
    if pool.compressed is not None:
        return {}
    return {"num_tokens": pool.tokens}


def compressed_figures(planned: StagePlan) -> Figures:
    """DeepSeek-V4's pools, with the budget that it logs."""
    pool, resolved = planned.pool, planned.stage.resolved
    compressed, cell = pool.compressed, pool.cell.num_bytes
    assert compressed is not None
    budget = pool.budget.num_bytes
    fixed = c128_state_bytes(planned.stage, expected_requests(resolved, budget, cell))
    return {
        "bytes_per_full_token": cell,
        "available_bytes_gib": budget / GIB,
        "c128_state_fixed_gib": fixed / GIB,
        "full_token": compressed.full_tokens,
        "compressed_full": compressed.full_tokens,
        "compressed_swa": compressed.sliding_tokens,
        "c4": compressed.c4_tokens,
        "c128": compressed.c128_tokens,
        "c4_state": compressed.c4_state_slots,
        "c128_state": pool.c128_state_slots,
        "max_num_reqs": pool.requests.max_running,
    }


def host_figures(host: tuple[HostPool, ...]) -> Figures:
    """Slots of the host pools, and their decimal GB."""
    found: Figures = {}
    for pool in host:
        if pool.pool in HOST_FIGURES and pool.num_bytes:
            slots, size = HOST_FIGURES[pool.pool]
            found[slots] = pool.size
            found[size] = pool.num_bytes / DECIMAL_GB
    return found
