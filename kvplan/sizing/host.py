"""The host tier (HiCache): slots of each host pool, before the minimum over the stages."""

from __future__ import annotations

import msgspec

from kvplan.errors import CombinationError
from kvplan.sizing.capacities import HostPool
from kvplan.sizing.cell import target_terms
from kvplan.sizing.pool import StagePool
from kvplan.sizing.resolved import Hicache
from kvplan.sizing.shapes import state_bytes_per_layer
from kvplan.sizing.sliding import layer_bytes
from kvplan.sizing.stage import Stage
from kvplan.units import GIB, ceil_div

DECIMAL_GB = 1e9  # --hicache-size counts decimal gigabytes a rank
HOST_RESERVE_BYTES = 10 * GIB  # left to the machine before any host pool
ALLOCATION_SLACK = 0.05  # page rounding and staging buffers beside the pools


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
    return tuple(host_pool(each, hicache, mirrored) for each in mirrored)


def host_pool(mirror: Mirrored, hicache: Hicache, mirrored: tuple[Mirrored, ...]) -> HostPool:
    """A given size is shared by device bytes; with a ratio each pool follows its own."""
    if hicache.size_gb > 0:
        total = sum(each.device_bytes for each in mirrored)
        size_gb = (
            hicache.size_gb * mirror.device_bytes / total if len(mirrored) > 1 else hicache.size_gb
        )
        slots = int(size_gb * DECIMAL_GB // mirror.bytes_per_token) if mirror.bytes_per_token else 0
    else:
        slots = int(mirror.slots * host_ratio(hicache, mirrored))
    size = (slots // mirror.page_size + 1) * mirror.page_size
    return HostPool(mirror.pool, size, mirror.page_size, mirror.bytes_per_token)


def host_ratio(hicache: Hicache, mirrored: tuple[Mirrored, ...]) -> float:
    """The ratio asked for; a default one shrinks to what the machine's memory holds."""
    ratio = hicache.ratio or 0.0
    if hicache.ratio_given or hicache.host_free_bytes is None:
        return ratio
    per_rank = max(0, hicache.host_free_bytes - HOST_RESERVE_BYTES) // hicache.ranks_per_host
    budget = int(per_rank * hicache.host_memory_fraction)
    device_bytes = sum(each.device_bytes for each in mirrored)
    return min(ratio, budget * (1 - ALLOCATION_SLACK) / device_bytes)


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
