"""The plan of a launch: every stage's pools under the minimum over all stages."""

from __future__ import annotations

import msgspec

from kvplan.errors import CombinationError
from kvplan.sizing.budget import Budget, Memory, kv_budget
from kvplan.sizing.capacities import HostPool, Split
from kvplan.sizing.pool import StagePool, cap_stage, pool_kind, tokens_of
from kvplan.sizing.reserves import Reserves, reserves
from kvplan.sizing.resolved import Resolved
from kvplan.sizing.shortage import Shortage
from kvplan.sizing.stage import Stage, make_stage
from kvplan.spec.gpu import GpuSpec
from kvplan.spec.model import ModelSpec


class StagePlan(msgspec.Struct, frozen=True):
    """One pipeline stage: what it could hold alone, and what it holds beside the others."""

    stage: Stage
    pool: StagePool
    host: tuple[HostPool, ...]


class Plan(msgspec.Struct, frozen=True):
    """A launch that starts: the pools of every stage."""

    model: ModelSpec
    draft: ModelSpec | None
    gpu: GpuSpec
    resolved: Resolved
    reserves: Reserves
    memory: Memory
    stages: tuple[StagePlan, ...]

    @property
    def tokens(self) -> int:
        """`max_total_num_tokens`, the same on every stage."""
        return min(stage.pool.tokens for stage in self.stages)

    @property
    def max_running_requests(self) -> int:
        """Of one DP rank."""
        return min(stage.pool.requests.max_running for stage in self.stages)

    @property
    def rows(self) -> int:
        """Rows of req_to_token: running requests, pre-allocation of a decode node, padding."""
        return self.max_running_requests + self.resolved.decode_extra_slots + 1


class NoStart(msgspec.Struct, frozen=True):
    """A launch that the engine refuses for want of memory, and on which stage."""

    model: ModelSpec
    draft: ModelSpec | None
    gpu: GpuSpec
    resolved: Resolved
    reserves: Reserves
    memory: Memory
    pp_rank: int
    shortage: Shortage


class Profile(msgspec.Struct, frozen=True):
    """A stage before any bound from outside: its budget and what that holds."""

    stage: Stage
    budget: Budget
    split: Split


def plan_launch(
    model: ModelSpec,
    gpu: GpuSpec,
    resolved: Resolved,
    memory: Memory,
    draft: ModelSpec | None = None,
) -> Plan | NoStart:
    """Size every pipeline stage and take the minimum of their tokens, as the engine does.

    CombinationError for settings that the engine refuses once its pools are sized.
    """
    needs = reserves(resolved)
    profiles = []
    for pp_rank in range(resolved.widths.pp):
        profile = profile_stage(make_stage(model, resolved, draft, pp_rank), memory)
        if isinstance(profile, Shortage):
            return NoStart(model, draft, gpu, resolved, needs, memory, pp_rank, profile)
        profiles.append(profile)
    limit = min(tokens_of(profile.split) for profile in profiles)
    if resolved.max_total_tokens is not None:
        limit = min(limit, resolved.max_total_tokens)
    stages = []
    for profile in profiles:
        pool = cap_stage(profile.stage, profile.budget, profile.split, limit)
        if isinstance(pool, Shortage):
            return NoStart(model, draft, gpu, resolved, needs, memory, profile.stage.pp_rank, pool)
        if pool.requests.max_running <= 0:
            shortage = no_request(profile.stage, pool)
            return NoStart(
                model, draft, gpu, resolved, needs, memory, profile.stage.pp_rank, shortage
            )
        stages.append((profile.stage, pool))
    if resolved.pool_refusal is not None:
        raise CombinationError(resolved.pool_refusal)
    planned = tuple(StagePlan(stage, pool, host_pools(stage, pool)) for stage, pool in stages)
    for each in planned if resolved.hicache.host_free_bytes is not None else ():
        lacking = host_shortage(each, needs.row_width)
        if lacking is not None:
            rank = each.stage.pp_rank
            return NoStart(model, draft, gpu, resolved, needs, memory, rank, lacking)
    return Plan(model, draft, gpu, resolved, needs, memory, planned)


def host_shortage(planned: StagePlan, row_width: int) -> Shortage | None:
    """What the machine lacks for one stage's host pools; HiSparse's own are checked elsewhere."""
    from kvplan.sizing import host

    if planned.stage.resolved.hisparse is not None:
        return None
    pools = planned.host or host.backup_pools(planned.stage, planned.pool, row_width)
    return host.host_shortage(planned.stage, pools)


def host_pools(stage: Stage, pool: StagePool) -> tuple[HostPool, ...]:
    """Host pools of one stage; none where neither the hierarchical cache nor HiSparse is on."""
    if stage.resolved.hisparse is not None:
        from kvplan.sizing.hisparse import host_side

        return host_side(stage, pool)
    if not stage.resolved.hicache.enabled:
        return ()
    from kvplan.sizing.host import size_host

    return size_host(stage, pool)


def profile_stage(stage: Stage, memory: Memory) -> Profile | Shortage:
    """One stage's budget, and the tokens that memory alone would allow."""
    budget = kv_budget(stage, memory)
    if isinstance(budget, Shortage):
        return budget
    split = pool_kind(stage).split_budget(stage, budget.num_bytes)
    if isinstance(split, Shortage):
        return split
    return Profile(stage, budget, split)


def no_request(stage: Stage, pool: StagePool) -> Shortage:
    """Half the tokens bound the requests, and the scheduler refuses to run none."""
    return Shortage(
        what="requests",
        problem=f"{pool.tokens} tokens serve no request: each counts as two tokens at least",
        have_bytes=int(pool.tokens * pool.cell.num_bytes),
        need_bytes=int(max(2, stage.resolved.page_size) * pool.cell.num_bytes),
        raise_flags=("--max-total-tokens", "--mem-fraction-static"),
    )
