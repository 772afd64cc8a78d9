"""Why a launch does not start, and the values of each flag at which it would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kvplan.sizing.plan import NoStart, Plan, plan_launch

FRACTION_MILLIS = 999  # mem_fraction_static is searched in thousandths
# what a higher ratio has more room for, and how far it is searched
GROWS_WITH = {
    "mamba_full_memory_ratio": frozenset({"state", "requests"}),
    "swa_full_tokens_ratio": frozenset({"sliding pool"}),
}
HIGHEST_PERCENT = {"mamba_full_memory_ratio": 2000, "swa_full_tokens_ratio": 100}


class Cure(msgspec.Struct, frozen=True):
    """A change that lets the launch start. `action` is raise, lower or set."""

    flag: str
    action: str
    value: str
    tokens: int

    def sentence(self) -> str:
        bound = {"raise": f"raise to ≥ {self.value}", "lower": f"lower to ≤ {self.value}"}
        how = bound.get(self.action, f"set to {self.value}")
        return f"{self.flag}: {how} → {self.tokens:,} tokens"


def cures(refused: NoStart) -> tuple[Cure, ...]:
    """The smallest change of each flag that starts the launch; empty where none does alone."""
    found = (
        fraction_cure(refused),
        lower_cure(refused, "--max-running-requests", "max_running_requests"),
        lower_cure(refused, "--max-mamba-cache-size", "max_mamba_cache_size"),
        lower_cure(refused, "--chunked-prefill-size", "chunked_prefill_size"),
        ratio_cure(refused, "--mamba-full-memory-ratio", "mamba_full_memory_ratio"),
        ratio_cure(refused, "--swa-full-tokens-ratio", "swa_full_tokens_ratio"),
    )
    return tuple(cure for cure in found if cure is not None)


def with_changes(refused: NoStart, **changes: Any) -> Plan | None:
    """The launch with other resolved arguments, if it starts."""
    resolved = msgspec.structs.replace(refused.resolved, **changes)
    other = plan_launch(refused.model, refused.gpu, resolved, refused.memory, refused.draft)
    return other if isinstance(other, Plan) else None


def smallest(low: int, high: int, works: Callable[[int], bool]) -> int | None:
    """The smallest integer in [low, high] that works, for a test that turns true once."""
    if low > high or not works(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if works(middle) else (middle + 1, high)
    return low


def fraction_cure(refused: NoStart) -> Cure | None:
    """More static memory is never worse: the smallest thousandth that starts."""

    def plan_at(millis: int) -> Plan | None:
        return with_changes(refused, mem_fraction_static=millis / 1000)

    current = int(refused.resolved.mem_fraction_static * 1000)
    millis = smallest(current + 1, FRACTION_MILLIS, lambda at: plan_at(at) is not None)
    plan = None if millis is None else plan_at(millis)
    if plan is None or millis is None:
        return None
    return Cure("--mem-fraction-static", "raise", f"{millis / 1000:g}", plan.tokens)


def lower_cure(refused: NoStart, flag: str, field: str) -> Cure | None:
    """The largest smaller value of a count that starts."""
    current = getattr(refused.resolved, field)
    if current is None or current <= 1 or plan_with(refused, field, 1) is None:
        return None
    reach = smallest(
        0, current - 1, lambda drop: plan_with(refused, field, current - drop) is not None
    )
    if reach is None:
        return None
    plan = plan_with(refused, field, current - reach)
    assert plan is not None
    return Cure(flag, "lower", str(current - reach), plan.tokens)


def plan_with(refused: NoStart, field: str, value: Any) -> Plan | None:
    return with_changes(refused, **{field: value})


def ratio_cure(refused: NoStart, flag: str, field: str) -> Cure | None:
    """The nearest hundredth that starts, on the side that gives the short pool more."""
    if not applies(refused, field):
        return None
    current = round(getattr(refused.resolved, field) * 100)
    sign = 1 if refused.shortage.what in GROWS_WITH[field] else -1
    reach = (HIGHEST_PERCENT[field] - current) if sign > 0 else current - 1

    def plan_at(distance: int) -> Plan | None:
        return plan_with(refused, field, (current + sign * distance) / 100)

    distance = smallest(1, reach, lambda at: plan_at(at) is not None)
    plan = None if distance is None else plan_at(distance)
    if plan is None or distance is None:
        return None
    value = f"{(current + sign * distance) / 100:g}"
    return Cure(flag, "raise" if sign > 0 else "lower", value, plan.tokens)


def applies(refused: NoStart, field: str) -> bool:
    """A ratio has a say in models that have such pools."""
    if field == "mamba_full_memory_ratio":
        return refused.model.linear is not None and refused.resolved.max_mamba_cache_size is None
    return refused.model.sliding is not None or refused.model.compressed is not None


def last_resort(refused: NoStart) -> str:
    """What to do where no single flag starts the launch."""
    widths = refused.resolved.widths
    if refused.memory.post_load_gib <= 0:
        doubled = widths.tp * 2
        return f"the weights alone do not fit: --tp-size {doubled}, more --pp-size, or fewer bits"
    return "no value of one flag starts this: use a larger --tp-size, or a GPU with more memory"
