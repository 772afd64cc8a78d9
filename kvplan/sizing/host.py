"""The host tier (HiCache): slots of each host pool, before the minimum over the stages."""

from __future__ import annotations

import math

import msgspec

from kvplan.errors import CombinationError
from kvplan.sizing.capacities import HostPool
from kvplan.sizing.cell import target_terms
from kvplan.sizing.pool import StagePool
from kvplan.sizing.resolved import Hicache
from kvplan.sizing.shapes import state_bytes_per_layer
from kvplan.sizing.shortage import Shortage
from kvplan.sizing.sliding import layer_bytes, sliding_cell
from kvplan.sizing.stage import Stage
from kvplan.units import GIB, ceil_div, ceil_page

DECIMAL_GB = 1e9  # --hicache-size counts decimal gigabytes a rank
HOST_RESERVE_BYTES = 10 * GIB  # left to the machine before any host pool
ALLOCATION_SLACK = 0.05  # page rounding and staging buffers beside the pools
BACKUP_RATIO = 0.2  # of a decode node that keeps retracted requests alone


class Mirrored(msgspec.Struct, frozen=True):
    """A device pool that the host mirrors."""

    pool: str  # kv, sliding, state
    slots: int
    page_size: int
    bytes_per_token: int

    @property
    def device_bytes(self) -> int:
        """The pool with its padding page (or slot)."""
        return (self.slots + self.page_size) * self.bytes_per_token


def mirrored_pools(stage: Stage, pool: StagePool) -> tuple[Mirrored, ...]:
    """The device pools that get a host pool of their own."""
    page = stage.resolved.page_size
    if pool.sliding is not None:
        full, slide = layer_bytes_of_stage(stage)
        return (
            Mirrored("kv", pool.sliding.full_tokens, page, full),
            Mirrored("sliding", pool.sliding.sliding_tokens, page, slide),
        )
    kv = Mirrored("kv", pool.tokens, page, int(target_terms(stage)[0].num_bytes))
    if pool.budget.state is None:
        return (kv,)
    return kv, Mirrored("state", pool.budget.state.slots, 1, local_state_bytes(stage))


def layer_bytes_of_stage(stage: Stage) -> tuple[int, int]:
    """Bytes of one token over the stage's full and over its sliding layers."""
    sliding = stage.model.sliding
    assert sliding is not None
    full, slide = layer_bytes(stage, sliding)
    return full * len(stage.layers.full), slide * len(stage.layers.sliding)


def local_state_bytes(stage: Stage) -> int:
    """One state slot over the linear layers of this stage alone."""
    linear, resolved = stage.model.linear, stage.resolved
    assert linear is not None
    per_layer = state_bytes_per_layer(linear, resolved.widths.attn_tp, resolved.mamba_ssm_dtype)
    return per_layer * len(stage.layers.linear)


def size_host(stage: Stage, pool: StagePool) -> tuple[HostPool, ...]:
    """Every host pool of one stage; empty where the tier is off."""
    hicache = stage.resolved.hicache
    if not hicache.enabled:
        return ()
    if pool.compressed is not None:
        return compressed_host(stage, pool, hicache)
    mirrored = mirrored_pools(stage, pool)
    device_bytes = device_bytes_of(stage, pool)
    return tuple(host_pool(each, hicache, mirrored, device_bytes) for each in mirrored)


def host_pool(
    mirror: Mirrored, hicache: Hicache, mirrored: tuple[Mirrored, ...], device_bytes: int
) -> HostPool:
    """A given size is shared by device bytes; with a ratio each pool follows its own."""
    if hicache.size_gb > 0:
        total = sum(each.device_bytes for each in mirrored)
        size_gb = (
            hicache.size_gb * mirror.device_bytes / total if len(mirrored) > 1 else hicache.size_gb
        )
        slots = int(size_gb * DECIMAL_GB // mirror.bytes_per_token) if mirror.bytes_per_token else 0
    else:
        slots = int(mirror.slots * host_ratio(hicache, device_bytes))
    size = (slots // mirror.page_size + 1) * mirror.page_size
    return HostPool(mirror.pool, size, mirror.page_size, mirror.bytes_per_token)


def shrinks(hicache: Hicache) -> bool:
    """Whether the engine lowers the ratio to the machine: nobody gave a ratio or a size."""
    return not hicache.ratio_given and hicache.size_gb == 0


def host_ratio(hicache: Hicache, device_bytes: int) -> float:
    """The ratio asked for; a default one shrinks to what the machine's memory holds."""
    ratio, share = hicache.ratio or 0.0, free_share(hicache)
    if share is None or not shrinks(hicache):
        return ratio
    budget = max(0, int(share * hicache.host_memory_fraction))
    return min(ratio, budget * (1 - ALLOCATION_SLACK) / device_bytes)


def free_share(hicache: Hicache) -> int | None:
    """Host bytes that one rank may take, below 0 where the reserve is not free; None where unknown."""
    if hicache.host_free_bytes is None:
        return None
    return (hicache.host_free_bytes - HOST_RESERVE_BYTES) // hicache.ranks_per_host


def free_for_ratio(hicache: Hicache, device_bytes: int) -> int:
    """Free host bytes from which the default ratio stays whole."""
    budget = (hicache.ratio or 0.0) * device_bytes / (1 - ALLOCATION_SLACK)
    share = math.ceil(math.ceil(budget) / hicache.host_memory_fraction)
    return HOST_RESERVE_BYTES + share * hicache.ranks_per_host


def device_bytes_of(stage: Stage, pool: StagePool) -> int:
    """Device bytes that the host tier mirrors: every layer's, index keys and drafts included."""
    page, state = stage.resolved.page_size, pool.budget.state
    if pool.sliding is not None:
        cell = sliding_cell(stage)
        full = (pool.sliding.full_tokens + page) * cell.fixed_bytes
        return full + (pool.sliding.sliding_tokens + page) * cell.sliding_bytes
    kv = int((pool.tokens + page) * pool.cell.num_bytes)
    return kv if state is None else kv + (state.slots + 1) * local_state_bytes(stage)


def rank_bytes(stage: Stage, pools: tuple[HostPool, ...]) -> int | None:
    """Bytes of one rank's host pools with the index keys; None where they are counted in pages."""
    if stage.model.compressed is not None:
        return None
    total = sum(pool.num_bytes for pool in pools)
    if stage.model.indexer is not None and pools:
        total += pools[0].size * int(target_terms(stage)[1].num_bytes)
    return total


def host_shortage(stage: Stage, pools: tuple[HostPool, ...]) -> Shortage | None:
    """What the machine lacks for the host pools; None where they fit or nothing is known of it."""
    hicache, need = stage.resolved.hicache, rank_bytes(stage, pools)
    share = free_share(hicache)
    if share is None or need is None or not pools:
        return None
    have = int(share * hicache.host_memory_fraction) if shrinks(hicache) else share
    if need <= have:
        return None
    return Shortage(
        what="host memory",
        problem=host_problem(hicache, need, have),
        have_bytes=have,
        need_bytes=need,
        lower_flags=("--hicache-size", "--hicache-ratio"),
    )


def host_problem(hicache: Hicache, need_bytes: int, have_bytes: int) -> str:
    """Both figures: what the pools take, and what the machine has for them."""
    if shrinks(hicache):
        free = (hicache.host_free_bytes or 0) / GIB
        return (
            f"no host memory is left for the host pools: {free:.2f} GiB are free,"
            " of which 10 GiB stay reserved"
        )
    ranks = f" for each of {hicache.ranks_per_host} ranks" if hicache.ranks_per_host > 1 else ""
    return (
        f"the host pools take {need_bytes / DECIMAL_GB:.2f} GB a rank, and after the reserve of"
        f" 10 GiB {max(0, have_bytes) / DECIMAL_GB:.2f} GB of host memory are left{ranks}"
    )


def backup_pools(stage: Stage, pool: StagePool, row_width: int) -> tuple[HostPool, ...]:
    """Host pools of a decode node that keeps retracted requests there and caches nothing."""
    hicache = stage.resolved.hicache
    if hicache.enabled or not hicache.backs_up:
        return ()
    mirrored = mirrored_pools(stage, pool)
    if not (hicache.ratio_given or hicache.size_gb):
        page, tokens = stage.resolved.page_size, mirrored[0].slots
        one = ceil_page(min(row_width - 1, tokens), page) / tokens
        hicache = msgspec.structs.replace(hicache, ratio=max(BACKUP_RATIO, one))
    device_bytes = device_bytes_of(stage, pool)
    return tuple(host_pool(each, hicache, mirrored, device_bytes) for each in mirrored)


def compressed_host(stage: Stage, pool: StagePool, hicache: Hicache) -> tuple[HostPool, ...]:
    """DeepSeek-V4 mirrors whole pages by ratio."""
    if hicache.size_gb > 0:
        raise CombinationError(
            "DeepSeek-V4 has no host tier of a fixed size",
            hint="give --hicache-ratio instead of --hicache-size",
        )
    compressed, page = pool.compressed, stage.resolved.page_size
    assert compressed is not None
    sides = (("kv", compressed.full_tokens), ("sliding", compressed.sliding_tokens))
    return tuple(
        HostPool(name, int(ceil_div(tokens, page) * (hicache.ratio or 0.0)) * page, page, 0)
        for name, tokens in sides
    )
