"""State slots of hybrid linear models: how many, and what they take from the budget."""

from __future__ import annotations

from functools import lru_cache

from kvplan.sizing.capacities import StatePool
from kvplan.sizing.resolved import Resolved
from kvplan.sizing.shapes import stage_range, state_bytes_per_layer
from kvplan.sizing.shortage import Shortage
from kvplan.sizing.stage import Stage
from kvplan.units import GIB, MIB

BASE_SLOTS = 3  # per running request with a radix cache: running, and two being cached


def slots_per_request(resolved: Resolved) -> int:
    """State slots one running request needs: base and tracking slots of its strategy."""
    if not resolved.radix_cache:
        return 1
    return BASE_SLOTS + tracking_slots(resolved)


def tracking_slots(resolved: Resolved) -> int:
    """Slots that track the state for the radix cache: two ping-pong under overlap."""
    match resolved.mamba_strategy:
        case "extra_buffer":
            return 2 if resolved.overlap_schedule else 1
        case "extra_buffer_lazy":
            return 1
    return 0


def stage_slot_bytes(stage: Stage) -> int:
    """One slot's bytes as the engine budgets it: the stage with most linear layers counts."""
    linear, widths = stage.model.linear, stage.resolved.widths
    assert linear is not None
    per_layer = state_bytes_per_layer(linear, widths.attn_tp, stage.resolved.mamba_ssm_dtype)
    total, count = per_layer * len(linear.layers), len(linear.layers)
    if widths.pp == 1 or not count:
        return total
    most = most_linear_layers(linear.layers, stage.model.num_layers, widths.pp, widths.pp_partition)
    return int(total * (most / count))


@lru_cache(maxsize=256)
def most_linear_layers(
    layers: tuple[int, ...], num_layers: int, pp_size: int, partition: tuple[int, ...] | None
) -> int:
    """Linear layers of the pipeline stage that has most of them."""
    spans = (stage_range(num_layers, rank, pp_size, partition) for rank in range(pp_size))
    return max(sum(layer in span for layer in layers) for span in spans)


def running_requests(resolved: Resolved) -> int:
    """Requests of one DP rank where the launch says how many."""
    assert resolved.max_running_requests is not None
    return max(1, resolved.max_running_requests // resolved.widths.attn_dp)


def size_state(stage: Stage, rest_gib: float) -> StatePool | Shortage:
    """Slots of the recurrent state, and the GiB of `rest_gib` that stay for KV."""
    resolved, slot_bytes = stage.resolved, stage_slot_bytes(stage)
    ratio = slots_per_request(resolved)
    verifies = resolved.speculation.algorithm is not None
    verifies = verifies and resolved.disaggregation_mode != "prefill"
    draft_tokens = (resolved.speculation.num_draft_tokens or 0) if verifies else 0
    snapshots = 0
    if resolved.max_mamba_cache_size is not None:
        slots = resolved.max_mamba_cache_size // resolved.widths.attn_dp
        origin = "--max-mamba-cache-size"
    elif not resolved.radix_cache and resolved.max_running_requests is not None:
        slots = running_requests(resolved)
        origin = "max_running_requests, without a radix cache"
    else:
        slots = slots_of_ratio(resolved, rest_gib, slot_bytes, ratio, draft_tokens)
        origin = f"mamba_full_memory_ratio {resolved.mamba_full_memory_ratio}"
    if verifies:
        snapshots = min(running_requests(resolved), slots // ratio)
        if origin.startswith("max_running"):
            snapshots = slots
        rest_gib -= slot_bytes * (snapshots + 1) * draft_tokens / GIB
    if slots <= 0:
        return too_little_state(slot_bytes, rest_gib)
    return StatePool(
        slots=slots,
        slot_bytes=slot_bytes,
        slots_per_request=ratio,
        snapshot_requests=snapshots,
        draft_tokens=draft_tokens,
        rest_gib=rest_gib - (slots + 1) * slot_bytes / GIB,
        origin=origin,
    )


def slots_of_ratio(
    resolved: Resolved, rest_gib: float, slot_bytes: int, ratio: int, draft_tokens: int
) -> int:
    """State takes r / (1 + r) of the rest; one padding slot, and snapshots where it verifies."""
    share = resolved.mamba_full_memory_ratio
    budget = rest_gib * share / (1 + share) * GIB
    if draft_tokens:
        budget -= slot_bytes * (1 + draft_tokens)
        return int(budget // (slot_bytes * (1 + draft_tokens / ratio)))
    return int((budget - slot_bytes) // slot_bytes)


def too_little_state(slot_bytes: int, rest_gib: float) -> Shortage:
    """Not one slot fits, or the weights leave nothing for state and KV together."""
    problem = f"no state slot of {slot_bytes / MIB:.2f} MiB fits {rest_gib:.2f} GiB"
    if rest_gib <= 0:
        problem = f"the weights leave {rest_gib:.2f} GiB for state and KV"
    return Shortage(
        what="state",
        problem=problem,
        have_bytes=int(rest_gib * GIB),
        need_bytes=2 * slot_bytes,
        raise_flags=("--mem-fraction-static",),
        lower_flags=("--max-running-requests", "--speculative-num-draft-tokens"),
    )
