"""The byte budget of the KV pools: free memory after loading, less slack, less state."""

from __future__ import annotations

import math

import msgspec

from kvplan.sizing.capacities import StatePool
from kvplan.sizing.shortage import Shortage
from kvplan.sizing.stage import Stage
from kvplan.units import GIB


class Memory(msgspec.Struct, frozen=True):
    """Free GiB before and after the weights are in place, the minimum over the ranks."""

    pre_load_gib: float
    post_load_gib: float


class Budget(msgspec.Struct, frozen=True):
    """What the KV pools may take, and what was set aside before them."""

    num_bytes: int
    slack_gib: float  # pre_load * (1 - mem_fraction_static): graphs and activations
    multimodal_gib: float
    state: StatePool | None


def kv_budget(stage: Stage, memory: Memory) -> Budget | Shortage:
    """`rest_memory` of the engine in bytes, or why nothing is left."""
    resolved = stage.resolved
    slack = memory.pre_load_gib * (1 - resolved.mem_fraction_static)
    multimodal = resolved.multimodal_reservation_mib / 1024
    rest = memory.post_load_gib - slack - multimodal
    state = None
    if stage.model.linear is not None:
        from kvplan.sizing.recurrent import size_state

        sized = size_state(stage, rest)
        if isinstance(sized, Shortage):
            return sized
        state, rest = sized, sized.rest_gib
    if rest <= 0:
        return no_rest(memory, rest, state)
    return Budget(int(rest * GIB), slack, multimodal, state)


def smallest_fraction(memory: Memory) -> float:
    """The mem_fraction_static that the engine's refusal names."""
    if memory.pre_load_gib <= 0:
        return 1.0
    return math.ceil((1 - memory.post_load_gib / memory.pre_load_gib) * 1000) / 1000


def no_rest(memory: Memory, rest_gib: float, state: StatePool | None) -> Shortage:
    taker, verb = ("weights", "leave") if state is None else ("state", "leaves")
    return Shortage(
        what=taker,
        problem=f"the {taker} {verb} {rest_gib:.2f} GiB for KV",
        have_bytes=int(rest_gib * GIB),
        engine_fraction=smallest_fraction(memory),
        raise_flags=("--mem-fraction-static",),
        lower_flags=()
        if state is None
        else ("--max-mamba-cache-size", "--mamba-full-memory-ratio"),
    )
