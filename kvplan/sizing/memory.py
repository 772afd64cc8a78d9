"""Free memory before and after the weights: measured where given, else estimated with its range."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from kvplan.errors import InputError
from kvplan.sizing.budget import Memory
from kvplan.sizing.resolved import ParallelWidths
from kvplan.sizing.weights import RankWeights, draft_rank_weights, rank_weights
from kvplan.spec.gpu import GpuSpec
from kvplan.spec.model import ModelSpec
from kvplan.units import GIB

CONTEXT_GIB = 0.6  # driver and CUDA context of a quiet card; 0.4 to 1.6 in public logs

Gib = Annotated[float, Meta(ge=0, le=1 << 20)]


class MemoryInputs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of the card's memory, in GiB of one rank; the least over the ranks counts."""

    free_before_gib: Gib | None = None  # before the weights are loaded
    free_after_gib: Gib | None = None  # once they are in place, the draft's included
    weights_gib: Gib | None = None  # of one rank
    context_gib: Gib | None = None  # what driver and context take before anything
    host_free_gib: Gib | None = None  # free host memory, for the hierarchical cache


class MemoryEstimate(msgspec.Struct, frozen=True):
    """Free memory of the fullest rank, and what had to be assumed for it."""

    memory: Memory
    low_post_gib: float
    high_post_gib: float
    assumed: tuple[str, ...]
    pre_load_from: str = "given"
    post_load_from: str = "given"

    @property
    def measured(self) -> bool:
        return not self.assumed


def estimate_memory(
    given: MemoryInputs,
    gpu: GpuSpec,
    model: ModelSpec,
    draft: ModelSpec | None,
    widths: ParallelWidths,
    *,
    loads_draft: bool,
) -> MemoryEstimate:
    """Free GiB before and after loading. InputError where the weights are not known at all."""
    pre, pre_from, assumed = free_before(given, gpu)
    if given.free_after_gib is not None:
        check_order(pre, given.free_after_gib)
        return exact(Memory(pre, given.free_after_gib), pre_from, "given", assumed)
    if given.weights_gib is not None:
        memory = Memory(pre, pre - given.weights_gib)
        return exact(memory, pre_from, f"pre_load_gib − weights {given.weights_gib:g}", assumed)
    parts = loaded_weights(model, draft, widths, loads_draft=loads_draft)
    if not parts:
        raise InputError(
            f"the weights of '{model.name}' are not known",
            hint="give --weights-gib, or --free-before and --free-after from a log",
        )
    notes = tuple(map(weight_note, parts))
    return MemoryEstimate(
        memory=Memory(pre, pre - sum(part.num_bytes for part in parts) / GIB),
        low_post_gib=pre - sum(part.high_bytes for part in parts) / GIB,
        high_post_gib=pre - sum(part.low_bytes for part in parts) / GIB,
        assumed=(*assumed, *notes),
        pre_load_from=pre_from,
        post_load_from=f"pre_load_gib − {' − '.join(notes)}",
    )


def exact(
    memory: Memory, pre_from: str, post_from: str, assumed: tuple[str, ...]
) -> MemoryEstimate:
    """Memory whose weights are given."""
    post = memory.post_load_gib
    return MemoryEstimate(memory, post, post, assumed, pre_from, post_from)


def check_measured(given: MemoryInputs, gpu: GpuSpec) -> None:
    """InputError for figures that no such card can have, or that contradict each other."""
    card = gpu.memory_mib / 1024
    for name in ("free_before_gib", "context_gib"):
        value = getattr(given, name)
        if value is not None and value > card:
            raise InputError(
                f"{name} {value:g} exceeds the {card:.2f} GiB of '{gpu.name}'",
                hint="name the card that it was measured on with --gpu",
            )
    if given.free_after_gib is not None and given.weights_gib is not None:
        raise InputError(
            "free_after_gib and weights_gib both say what the weights take",
            hint="give one of --free-after and --weights-gib",
        )


def free_before(given: MemoryInputs, gpu: GpuSpec) -> tuple[float, str, tuple[str, ...]]:
    """Free GiB at engine start, where it is from, and the note when the context's size is assumed."""
    if given.free_before_gib is not None:
        return given.free_before_gib, "given", ()
    card = gpu.memory_mib / 1024
    context = CONTEXT_GIB if given.context_gib is None else given.context_gib
    how = f"{card:.2f} GiB card − {context:g} for driver and context"
    if given.context_gib is not None:
        return card - context, how, ()
    return card - context, how, (f"{CONTEXT_GIB} GiB for driver and context",)


def check_order(before_gib: float, after_gib: float) -> None:
    """Loading weights frees nothing."""
    if after_gib > before_gib:
        raise InputError(
            f"free memory after loading ({after_gib:g} GiB) exceeds that before ({before_gib:g} GiB)",
            hint="give the engine's own two figures with --free-before and --free-after",
        )


def loaded_weights(
    model: ModelSpec, draft: ModelSpec | None, widths: ParallelWidths, *, loads_draft: bool
) -> tuple[RankWeights, ...]:
    """Target and draft on the rank that holds most; () where the target's weights are unknown."""
    stages = [rank_weights(model, widths, rank) for rank in range(widths.pp)]
    known = [stage for stage in stages if stage is not None]
    if not known:
        return ()
    heaviest = max(known, key=lambda stage: stage.num_bytes)
    extra = draft_rank_weights(model, draft, widths) if loads_draft else None
    return (heaviest,) if extra is None else (heaviest, extra)


def weight_note(part: RankWeights) -> str:
    """`weights 14.96 GiB (±1 %, from …)`."""
    low = 1 - part.low_bytes / part.num_bytes if part.num_bytes else 0
    high = part.high_bytes / part.num_bytes - 1 if part.num_bytes else 0
    spread = f"−{low:.0%} +{high:.0%}" if round(low, 2) != round(high, 2) else f"±{high:.0%}"
    kind = "estimated weights" if part.estimated else "weights"
    return f"{kind} {part.num_bytes / GIB:.2f} GiB a rank ({spread}, {part.origin})"
