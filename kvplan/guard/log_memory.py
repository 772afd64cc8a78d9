"""Free memory as a start-up log measured it, with the rounding of its figures."""

from __future__ import annotations

import math

import msgspec

from kvplan.guard.server_log import Figure, ServerLog
from kvplan.sizing.memory import MemoryInputs

LARGEST_GIB = 1 << 20
SIZED = frozenset(
    {
        "num_tokens",
        "k_gib",
        "kv_gib",
        "swa_k_gib",
        "full_k_gib",
        "full_layer_tokens",
        "swa_layer_tokens",
        "max_mamba_cache_size",
        "bytes_per_full_token",
        "compressed_full",
        "avail_after_pool_gib",
        "max_total_num_tokens",
    }
)


class Reading(msgspec.Struct, frozen=True):
    """Free GiB at one moment on the rank that has least, and how far its printed digits may be off."""

    gib: float
    half_digit_gib: float
    figures: tuple[Figure, ...]


class Measured(msgspec.Struct, frozen=True):
    """Free memory before the weights and once all of them are in place; None where none is printed."""

    before: Reading | None
    after: Reading | None

    @property
    def complete(self) -> bool:
        """Whether tokens follow from the memory."""
        return self.before is not None and self.after is not None

    def inputs(self, lean: int = 0) -> MemoryInputs:
        """The memory of a plan: as printed, or leaning to the least (-1) or most (+1) that the digits allow.

        Tokens grow with the memory after the weights, and shrink with that before.
        """
        return MemoryInputs(
            free_before_gib=leaned(self.before, -lean), free_after_gib=leaned(self.after, lean)
        )


def leaned(reading: Reading | None, lean: int) -> float | None:
    """A reading moved by its rounding; negative memory counts as none."""
    if reading is None:
        return None
    return max(0.0, reading.gib + lean * reading.half_digit_gib)


def measured_memory(log: ServerLog) -> Measured:
    """The readings that the engine sized its pools by: the least over its ranks."""
    after = reading_after(log)
    before = reading_before(log)
    if before is not None and after is not None and after.gib > before.gib:
        return Measured(before, None)
    return Measured(before, after)


def reading_before(log: ServerLog) -> Reading | None:
    """Before the weights; where no line prints it, what is free after them plus what they took."""
    printed = [each for each in log.all("avail_before_load_gib") if plausible(each)]
    if printed:
        least = min(printed, key=lambda each: float(each.value))
        return Reading(float(least.value), least.rounding, (least,))
    weights = {each.rank: each for each in log.all("weights_gib") if plausible(each)}
    sums = [
        Reading(
            float(each.value) + float(weights[each.rank].value),
            each.rounding + weights[each.rank].rounding,
            (each, weights[each.rank]),
        )
        for each in log.all("avail_after_load_gib")
        if plausible(each) and each.rank in weights
    ]
    return min(sums, key=lambda reading: reading.gib, default=None)


def reading_after(log: ServerLog) -> Reading | None:
    """After the last weights that came before the pools, a draft's included."""
    sized: dict[str, int] = {}
    for figure in log.figures:
        if figure.name in SIZED:
            sized.setdefault(figure.rank, figure.line)
    last: dict[str, Figure] = {}
    for figure in log.figures:
        before_pools = figure.line <= sized.get(figure.rank, figure.line)
        if figure.name == "avail_after_load_gib" and before_pools and plausible(figure):
            last[figure.rank] = figure
    least = min(last.values(), key=lambda each: float(each.value), default=None)
    return Reading(float(least.value), least.rounding, (least,)) if least else None


def plausible(figure: Figure) -> bool:
    """Whether a figure is a size of memory."""
    value = float(figure.value)
    return math.isfinite(value) and -LARGEST_GIB < value < LARGEST_GIB
