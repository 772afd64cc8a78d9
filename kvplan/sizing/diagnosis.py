"""Why a launch does not start, and the values of each flag at which it would."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import msgspec

from kvplan.sizing.overcommitted import missing_bytes
from kvplan.sizing.plan import NoStart, Plan
from kvplan.sizing.replan import asked_fraction, replanned
from kvplan.sizing.resolved import Resolved

FRACTION_MILLIS = 999  # mem_fraction_static is searched in thousandths
LEAST_CHUNK = 64
MOST_TOKENS = 1 << 40  # up to which a cap on tokens is raised
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


class Knob(msgspec.Struct, frozen=True):
    """A flag that moves in whole steps from where it stands to a last one."""

    field: str
    current: int
    last: int
    step: int = 1  # of the argument
    divisor: int = 1  # thousandths, hundredths

    def value(self, position: int) -> int | float:
        number = position * self.step
        return number / self.divisor if self.divisor > 1 else number


def cures(refused: NoStart | Plan) -> tuple[Cure, ...]:
    """The smallest change of each flag that starts the launch; empty where none does alone.

    A plan is one whose pools and tables the card cannot hold.
    """
    moves = knobs(refused) if isinstance(refused, NoStart) else smaller_knobs(refused)
    found = (cure(refused, knob) for knob in moves)
    return tuple(each for each in found if each is not None)


def smaller_knobs(plan: Plan) -> Iterator[Knob]:
    """The flags that make pools and request rows smaller."""
    resolved = plan.resolved
    fraction = math.ceil(asked_fraction(resolved) * 1000)
    yield Knob("mem_fraction_static", fraction, 1, divisor=1000)
    yield Knob("max_running_requests", plan.max_running_requests * resolved.widths.attn_dp, 1)
    yield Knob("context_length", resolved.context_length, 1)


def knobs(refused: NoStart) -> Iterator[Knob]:
    """The flags that may start a launch, each with the direction that helps."""
    resolved, ranks = refused.resolved, refused.resolved.widths.attn_dp
    if refused.shortage.what == "host memory":
        yield from host_knobs(resolved)
        return
    fraction = int(asked_fraction(resolved) * 1000)
    yield Knob("mem_fraction_static", fraction, FRACTION_MILLIS, divisor=1000)
    if resolved.asked.max_total_tokens is not None:
        yield Knob("max_total_tokens", resolved.asked.max_total_tokens, MOST_TOKENS)
    for field in ("max_running_requests", "max_mamba_cache_size"):
        current = getattr(resolved, field)
        if current is not None:
            yield Knob(field, current, 1)
    if resolved.chunked_prefill_size > 0:
        step = max(resolved.page_size, LEAST_CHUNK) * ranks
        yield Knob("chunked_prefill_size", resolved.chunked_prefill_size * ranks // step, 1, step)
    for field, shorts in GROWS_WITH.items():
        if applies(refused, field):
            current = round(getattr(resolved, field) * 100)
            last = HIGHEST_PERCENT[field] if refused.shortage.what in shorts else 1
            yield Knob(field, current, last, divisor=100)


def host_knobs(resolved: Resolved) -> Iterator[Knob]:
    """The flag that sizes the host tier, towards less of it."""
    hicache = resolved.hicache
    if hicache.size_gb > 0:
        yield Knob("hicache_size", hicache.size_gb, 1)
    elif hicache.ratio is not None:
        yield Knob("hicache_ratio", round(hicache.ratio * 100), 1, divisor=100)


def cure(refused: NoStart | Plan, knob: Knob) -> Cure | None:
    """The step nearest to the current one that starts, whose neighbour on the way does not."""

    def plan_at(position: int) -> Plan | None:
        plan = replanned(refused, **{knob.field: knob.value(position)})
        return None if plan is None or missing_bytes(plan) else plan

    position = nearest(knob.current, knob.last, lambda at: plan_at(at) is not None)
    plan = None if position is None else plan_at(position)
    if position is None or plan is None:
        return None
    flag = f"--{knob.field.replace('_', '-')}"
    action = "raise" if knob.last > knob.current else "lower"
    value = knob.value(position)
    shown = str(value) if isinstance(value, int) else f"{value:g}"
    return Cure(flag, action, shown, plan.tokens)


def nearest(current: int, last: int, works: Callable[[int], bool]) -> int | None:
    """A working position towards `last` whose neighbour towards `current` does not work.

    Looks in growing strides: what works may stop working further on.
    """
    inside = current
    for position in strides(current, last):
        if not works(position):
            inside = position
            continue
        while abs(position - inside) > 1:
            middle = (position + inside) // 2
            position, inside = (middle, inside) if works(middle) else (position, middle)
        return position
    return None


def strides(current: int, last: int) -> Iterator[int]:
    """Positions from next to `current` to `last`: ever longer strides; below its half, halves."""
    position = last if last > current else max(last, current // 2)
    way = 1 if last > current else -1
    stride = 1
    while stride < abs(position - current):
        yield current + way * stride
        stride *= 2
    if position != current:
        yield position
    while position > last:
        position = max(last, position // 2)
        yield position


def smallest(low: int, high: int, works: Callable[[int], bool]) -> int | None:
    """The smallest integer in [low, high] that works, for a test that turns true once."""
    if low > high or not works(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if works(middle) else (middle + 1, high)
    return low


def applies(refused: NoStart, field: str) -> bool:
    """A ratio has a say in models that have such pools."""
    if field == "mamba_full_memory_ratio":
        return refused.model.linear is not None and refused.resolved.max_mamba_cache_size is None
    return refused.model.sliding is not None or refused.model.compressed is not None


def last_resort(refused: NoStart | Plan) -> str:
    """What to do where no single flag starts the launch."""
    if isinstance(refused, NoStart) and refused.shortage.what == "host memory":
        return "no size of the host tier fits: free host memory, or run without the tier"
    if refused.memory.post_load_gib <= 0:
        return "the weights alone do not fit: a larger --tp-size or --pp-size, or fewer bits"
    return "no memory setting starts this: use a larger --tp-size, or a GPU with more memory"
