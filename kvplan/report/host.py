"""The host tier of a plan: its pools, and what the machine must have free for them."""

from __future__ import annotations

from typing import Any

import msgspec

from kvplan.sizing.capacities import HostPool
from kvplan.sizing.plan import Plan, StagePlan
from kvplan.units import GIB

RATIO_ONLY = (
    "SGLang lowers no ratio of its own for DeepSeek-V4's host tier and refuses to start:"
    " give --hicache-ratio"
)


def host_report(plan: Plan, stage: StagePlan) -> list[dict[str, Any]]:
    """Host pools of one rank; stages share the least number of slots."""
    return [pool_report(least(plan, pool)) for pool in stage.host]


def backup_report(plan: Plan, stage: StagePlan) -> list[dict[str, Any]]:
    """Host pools of a decode node for the KV of retracted requests."""
    if not plan.resolved.hicache.backs_up:
        return []
    from kvplan.sizing.host import backup_pools

    pools = backup_pools(stage.stage, stage.pool, plan.reserves.row_width)
    return [pool_report(pool) for pool in pools]


def pool_report(pool: HostPool) -> dict[str, Any]:
    return msgspec.structs.asdict(pool) | {"bytes": pool.num_bytes}


def least(plan: Plan, pool: HostPool) -> HostPool:
    """The pool with the least slots of all stages that hold bytes in it."""
    sizes = [
        other.size
        for stage in plan.stages
        for other in stage.host
        if other.pool == pool.pool and other.bytes_per_token
    ]
    return msgspec.structs.replace(pool, size=min(sizes, default=pool.size))


def host_notes(plan: Plan) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is assumed of the machine, and warnings."""
    hicache = plan.resolved.hicache
    if not (hicache.enabled or hicache.backs_up):
        return (), ()
    from kvplan.sizing.host import device_bytes_of, free_for_ratio, shrinks

    if not shrinks(hicache):
        return (), ()
    if plan.model.compressed is not None:
        return (), (RATIO_ONLY,) if hicache.enabled else ()
    if hicache.host_free_bytes is not None or not hicache.enabled:
        return (), ()
    free = max(
        free_for_ratio(hicache, device_bytes_of(stage.stage, stage.pool)) for stage in plan.stages
    )
    note = (
        f"{free / GIB:.1f} GiB of host memory free (--host-free-gib), below which the engine"
        f" lowers the host tier's ratio of {hicache.ratio:g}"
    )
    return (note,), ()
