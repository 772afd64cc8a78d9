"""Recorded launches with as few tokens as they start with: one of each family, small enough to build."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from kvplan.errors import KvplanError
from kvplan.sizing.plan import Plan, plan_launch
from kvplan.sizing.tensors import stage_tensors
from tests.pools.recorded import recorded_plans

MIB = 1 << 20
PAGES = (4, 8, 16, 64, 256, 1024, 4096, 16384)


def family(plan: Plan) -> tuple[Any, ...]:
    """What makes pools of different kinds."""
    model = plan.stages[0].stage.model
    return (
        type(model.attention).__name__,
        plan.resolved.kv_recipe,
        plan.resolved.kv_cache_dtype,
        plan.resolved.kv_recipe is not None and (plan.resolved.page_size, plan.resolved.gpu_sm),
        model.sliding is not None,
        model.indexer is not None and plan.resolved.dsa_raw_layout,
        model.linear and type(model.linear.state).__name__,
        model.compressed is not None,
        model.sparse is not None,
        plan.resolved.widths.attn_dcp > 1,
        bool(plan.resolved.speculation.algorithm),
    )


@cache
def small_plans(folder: Path, max_mib: int = 64) -> dict[str, Plan]:
    """One small plan of each family that can be small, by the name of its record."""
    found: dict[tuple[Any, ...], tuple[str, Plan]] = {}
    for name, plan in recorded_plans(folder):
        if family(plan) in found:
            continue
        small = smallest(plan)
        if small is not None and bytes_of(small) < max_mib * MIB:
            found[family(plan)] = name, small
    return dict(found.values())


def smallest(plan: Plan) -> Plan | None:
    """The same launch capped at the fewest pages that it starts with."""
    resolved = msgspec.structs.replace(
        plan.resolved,
        max_running_requests=8,
        context_length=1024,
        max_mamba_cache_size=None if plan.resolved.mamba_strategy is None else 64,
    )
    for num_pages in PAGES:
        capped = msgspec.structs.replace(resolved, max_total_tokens=num_pages * resolved.page_size)
        try:
            outcome = plan_launch(plan.model, plan.gpu, capped, plan.memory, plan.draft)
        except KvplanError:
            return None
        if isinstance(outcome, Plan):
            return outcome
    return None


def bytes_of(plan: Plan) -> int:
    return sum(tensor.num_bytes for tensor in stage_tensors(plan, plan.stages[0]))
