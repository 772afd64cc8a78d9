"""The pools of a plan as torch tensors: on meta for the layout, on a device for real."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvplan.errors import InputError, PoolError
from kvplan.pools.base import KvPool, PoolTensor
from kvplan.pools.build_draft import draft_pools
from kvplan.pools.build_kv import kv_pool
from kvplan.pools.build_state import request_rows, state_pool
from kvplan.pools.hybrid import HybridLinearPool
from kvplan.pools.hybrid_rows import HybridRequestRows
from kvplan.pools.recurrent import StatePool
from kvplan.pools.room import check_room
from kvplan.pools.rows import RequestRows
from kvplan.pools.scale import scale_down
from kvplan.pools.storage import Storage, open_storage
from kvplan.pools.striped import ContextStripedPool
from kvplan.sizing.plan import Plan, StagePlan

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

    def parts(self) -> dict[str, list[PoolTensor]]:
        """Every tensor by its pool: rows, state, kv or full and sliding, ..., draft KV."""
        parts = {"rows": self.rows.tensors()} | self.kv.parts()
        if isinstance(self.rows, HybridRequestRows):
            free = self.rows.state_slots.free_slots()
            parts["state"] = [*parts["state"], PoolTensor("free_slots", (), free, is_view=False)]
        drafts = [entry for pool in self.drafts for entry in pool.tensors()]
        return parts | {"draft KV": drafts} if drafts else parts

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


def check_form(plan: Plan) -> None:
    """Refuse the layouts that have no pools here, each with what would build."""
    resolved = plan.resolved
    for asked, what, instead in (
        (resolved.request_ring is not None, "rings of DeepSeek-V4 are", "leave dsv4_unified_kv"),
        (resolved.uniform_latents, "uniform latents are", "leave --dsv4-attn-backend"),
        (resolved.unified_memory, "a unified buffer is", "leave --enable-unified-memory"),
        (resolved.kv_shards > 1, "gather scratch is", "leave --enable-kv-cache-sharding"),
    ):
        if asked:
            raise PoolError(
                f"{what} not built from a plan", hint=f"{instead} out to build plain pools"
            )


def build_on(plan: Plan, pp_rank: int, dcp_rank: int, storage: Storage) -> Pools:
    """The pools of one rank on a storage."""
    stage = plan.stages[pp_rank]
    check_form(plan)
    state = state_pool(plan, stage, storage)
    kv = kv_pool(stage, storage)
    ranks = plan.resolved.widths.attn_dcp
    if ranks > 1:
        kv = ContextStripedPool(kv, rank=dcp_rank, num_ranks=ranks)
    if state is not None:
        kv = HybridLinearPool(kv, state)
    return Pools(
        plan=plan,
        stage=stage,
        rows=request_rows(plan, state, storage),
        kv=kv,
        state=state,
        drafts=tuple(draft_pools(plan, stage, storage)),
    )
