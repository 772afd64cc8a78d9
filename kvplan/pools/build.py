"""The pools of a plan as torch tensors: on meta for the layout, on a device for real."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvplan.allocators.unified import UnifiedAllocator
from kvplan.errors import InputError
from kvplan.pools.base import KvPool, PoolTensor
from kvplan.pools.build_draft import draft_pools
from kvplan.pools.build_kv import kv_pool
from kvplan.pools.build_state import request_rows, state_pool
from kvplan.pools.build_unified import shared_allocator, unified_pool
from kvplan.pools.gather_scratch import GatherScratch
from kvplan.pools.hybrid import HybridLinearPool
from kvplan.pools.hybrid_rows import HybridRequestRows
from kvplan.pools.recurrent import StatePool
from kvplan.pools.room import check_room
from kvplan.pools.rows import RequestRows
from kvplan.pools.scale import scale_down
from kvplan.pools.storage import Storage, open_storage
from kvplan.pools.striped import ContextStripedPool, InterleavedPool
from kvplan.sizing.plan import Plan, StagePlan
from kvplan.sizing.sharding import num_pools, scratch_tensors

META = Storage(torch.device("meta"))


@dataclass(frozen=True, slots=True)
class Pools:
    """Every pool of one pipeline stage on one rank."""

    plan: Plan  # what was built: scaled down where that was asked for
    stage: StagePlan
    rows: RequestRows
    kv: KvPool
    state: StatePool | None
    drafts: tuple[KvPool, ...]
    scratch: tuple[GatherScratch, ...] = ()
    shared: UnifiedAllocator | None = None  # of pools that lie in one buffer

    def parts(self) -> dict[str, list[PoolTensor]]:
        """Every tensor by its pool: rows, state, kv or full and sliding, ..., draft KV."""
        parts = {"rows": self.rows.tensors()} | self.kv.parts()
        if isinstance(self.rows, HybridRequestRows) and self.shared is None:
            free = self.rows.state_slots.free_slots()
            parts["state"] = [*parts["state"], PoolTensor("free_slots", (), free, is_view=False)]
        drafts = [entry for pool in self.drafts for entry in pool.tensors()]
        scratch = [entry for each in self.scratch for entry in each.tensors()]
        more = {"scratch": scratch, "draft KV": drafts}
        return parts | {name: entries for name, entries in more.items() if entries}

    def tensors(self) -> list[PoolTensor]:
        """Every tensor, views marked."""
        return [entry for part in self.parts().values() for entry in part]

    def bytes(self) -> int:
        """Bytes of all tensors, views not counted."""
        return sum(entry.tensor.nbytes for entry in self.tensors() if not entry.is_view)


def build(
    plan: Plan,
    device: str | torch.device = "meta",
    *,
    pp_rank: int = 0,
    dcp_rank: int = 0,
    kv_scale: bool = False,
    custom_pool: bool = False,
    releasable: bool = False,
) -> Pools:
    """All pools of a stage on `meta`, `cpu`, `cuda` or `auto`.

    `dcp_rank` is the rank among those that share one token space, by context parallelism or sharding.
    kv_scale builds one layer of a kind with one head of dimension 8, slots and rows at full size.
    Nothing is made before all of it is known to fit: DeviceError names both figures.
    """
    storage = open_storage(device, custom_pool=custom_pool, releasable=releasable)
    if not 0 <= pp_rank < len(plan.stages):
        raise InputError(
            f"there is no pipeline stage {pp_rank}",
            hint=f"the plan has stages 0 to {len(plan.stages) - 1}",
        )
    built = scale_down(plan) if kv_scale else plan
    check_room(storage.device, build_on(built, pp_rank, dcp_rank, META).bytes())
    return build_on(built, pp_rank, dcp_rank, storage)


def build_on(plan: Plan, pp_rank: int, dcp_rank: int, storage: Storage) -> Pools:
    """The pools of one rank on a storage."""
    planned = plan.stages[pp_rank]
    if planned.pool.unified is not None:
        return build_shared(plan, planned, dcp_rank, storage)
    state = state_pool(plan, planned, storage)
    kv = striped(plan, kv_pool(planned, storage), dcp_rank)
    drafts = [striped_draft(plan, each, dcp_rank) for each in draft_pools(plan, planned, storage)]
    return Pools(
        plan=plan,
        stage=planned,
        rows=request_rows(plan, state, storage),
        kv=kv if state is None else HybridLinearPool(kv, state),
        state=state,
        drafts=tuple(drafts),
        scratch=gather_scratch(planned, storage),
    )


def build_shared(plan: Plan, planned: StagePlan, dcp_rank: int, storage: Storage) -> Pools:
    """The pools of one rank in one buffer, with the allocator that states share with KV."""
    kv = unified_pool(planned, storage)
    allocator = shared_allocator(planned, kv)
    return Pools(
        plan=plan,
        stage=planned,
        rows=request_rows(plan, kv.state, storage, allocator.state_slots),
        kv=striped(plan, kv, dcp_rank),
        state=kv.state,
        drafts=(),
        shared=allocator,
    )


def striped(plan: Plan, local: KvPool, dcp_rank: int) -> KvPool:
    """A rank's part of the logical space: of its tokens, of its pages, or all of it."""
    dcp, shards = plan.resolved.widths.attn_dcp, plan.resolved.kv_shards
    if dcp > 1:
        return ContextStripedPool(local, rank=dcp_rank, num_ranks=dcp)
    if shards > 1:
        return InterleavedPool(local, rank=dcp_rank, num_ranks=shards)
    return local


def striped_draft(plan: Plan, local: KvPool, dcp_rank: int) -> KvPool:
    """A draft's pool is sharded with its target's; context parallel ranks each keep all of it."""
    shards = plan.resolved.kv_shards
    return local if shards == 1 else InterleavedPool(local, rank=dcp_rank, num_ranks=shards)


def gather_scratch(planned: StagePlan, storage: Storage) -> tuple[GatherScratch, ...]:
    """Scratch of the target's pool and of its draft's, where KV is sharded."""
    if planned.stage.resolved.kv_shards == 1:
        return ()
    rows = tuple(scratch_tensors(planned.stage))
    return tuple(GatherScratch(rows, storage=storage) for _ in range(num_pools(planned.stage)))
