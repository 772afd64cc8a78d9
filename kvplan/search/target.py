"""What a search must reach: tokens, requests of a length, a host tier, memory to spare, a workload served."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from kvplan.errors import InputError
from kvplan.guard.figures import figures
from kvplan.sizing.capacity import capacity_at, request_tokens, window_tokens
from kvplan.sizing.plan import Plan
from kvplan.units import GIB

MOST_GIB = 1 << 20


class Miss(msgspec.Struct, frozen=True):
    """What a plan falls short of, in words, and the share of it that it reaches."""

    text: str
    reached: float


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions that a plan must all hold. Tokens and requests are those of one DP rank."""

    tokens: int | None = None
    requests: int | None = None
    context: int | None = None
    """length of the requests; None: the launch's context length"""
    every_running: bool = False
    """each of max_running_requests must find room for `context` tokens"""
    host_tokens: int | None = None
    headroom_gib: float | None = None
    """least GiB that stay free beside weights and pools"""
    workload: Iterable[Any] | None = None
    """requests to replay, none of which may be retracted or rejected"""
    replay: Any = None
    """its ReplayOptions"""

    @property
    def costly(self) -> bool:
        """Whether trying one value takes a replay."""
        return self.workload is not None

    def describe(self) -> str:
        """The target in words: `500,000 tokens`."""
        parts = []
        if self.tokens is not None:
            parts.append(f"{self.tokens:,} token{'s' * (self.tokens != 1)}")
        if self.requests is not None:
            noun = "request" if self.requests == 1 else "requests"
            length = "of full context" if self.context is None else f"of {self.context:,} tokens"
            parts.append(f"{self.requests:,} {noun} {length}")
        if self.every_running:
            length = "full context" if self.context is None else f"{self.context:,} tokens"
            parts.append(f"{length} to every running request")
        if self.context is not None and self.requests is None and not self.every_running:
            parts.append(f"requests of {self.context:,} tokens")
        if self.host_tokens is not None:
            parts.append(f"{self.host_tokens:,} tokens on the host")
        if self.headroom_gib is not None:
            parts.append(f"{self.headroom_gib:g} GiB to spare")
        if self.workload is not None:
            parts.append("the workload without retractions or rejections")
        return ", ".join(parts)

    def length(self, plan: Plan) -> int:
        """Tokens of one request."""
        return self.context or plan.resolved.context_length

    def miss(self, plan: Plan) -> Miss | None:
        """The condition that a plan misses by most; None where it holds them all."""
        missed = [miss for miss in self.sizing_misses(plan) if miss is not None]
        if not missed and self.workload is not None:
            missed = [miss for miss in [workload_miss(plan, self)] if miss is not None]
        return min(missed, key=lambda miss: miss.reached, default=None)

    def sizing_misses(self, plan: Plan) -> list[Miss | None]:
        """Each condition that sizing alone decides."""
        at = capacity_at(plan, self.length(plan))
        running = plan.max_running_requests
        spare = figures(plan)["headroom_bytes"] / GIB if self.headroom_gib is not None else 0.0
        host = (
            min((stage.host[0].size for stage in plan.stages if stage.host), default=0)
            if self.host_tokens is not None
            else 0
        )
        return [
            short(plan.resolved.context_length, self.context, "tokens of context"),
            short(plan.tokens, self.tokens, "tokens"),
            short(at.requests, self.requests, "requests", f" ({at.bound_by})"),
            short(at.requests, running if self.every_running else None, "running requests"),
            short(host, self.host_tokens, "host tokens"),
            short(spare, self.headroom_gib, "GiB to spare"),
        ]

    def fills(self, plan: Plan) -> dict[str, float]:
        """Requests of the target's length that each pool has room for, as a fraction: KV, sliding, state."""
        length = self.length(plan)
        pool = min((stage.pool for stage in plan.stages), key=lambda each: each.tokens)
        side, state = pool.sliding or pool.compressed, pool.budget.state
        found: dict[str, float] = {}
        if pool.sliding is None or pool.sliding.full_tokens:
            tokens = pool.tokens * plan.resolved.widths.attn_dcp
            found["KV"] = tokens / request_tokens(plan, length)
        if side is not None:
            found["sliding"] = side.sliding_tokens / window_tokens(plan, length)
        if state is not None:
            found["state"] = state.slots / state.slots_per_request
        return found


def short(have: float, need: float | None, noun: str, why: str = "") -> Miss | None:
    """A count below what is needed; None where nothing is needed or enough is there."""
    if need is None or have >= need:
        return None
    shown = f"{have:,.2f} of {need:,.2f}" if isinstance(have, float) else f"{have:,} of {need:,}"
    return Miss(f"{shown} {noun}{why}", have / need)


def workload_miss(plan: Plan, target: Target) -> Miss | None:
    """The first retraction or rejection of a replay, which is stopped there."""
    from kvplan.replay.measured import measured
    from kvplan.replay.run import Driver, ReplayOptions, over_counts

    assert target.workload is not None
    first = FirstShortage()
    run = over_counts(plan, target.workload, target.replay or ReplayOptions())
    result, broken = measured(Driver(run, observers=[first], stop=first.met))
    served = result.num_finished / max(1, result.num_requests)
    if broken is not None:
        return Miss(broken.at(result.num_steps).sentence(), served)
    if result.fits:
        return None
    if result.num_retractions:
        return Miss(f"a request is retracted after {result.num_finished:,} are served", served)
    reason = next(iter(result.rejections), "nothing can make room for it")
    return Miss(f"a request is rejected: {reason}", served)


class FirstShortage:
    """Watches a replay for its first retraction or rejection."""

    def __init__(self) -> None:
        self.run: Any = None

    def attach(self, run: Any, total: int | None) -> None:
        del total
        self.run = run

    def see(self, turn: Any) -> None:
        """Nothing: the meter counts."""

    def met(self) -> bool:
        meter = self.run.meter
        return bool(meter.num_retractions or meter.num_aborted or meter.rejections)


def check_target(target: Target) -> None:
    """Refuse a target without a condition, or with one that is no memory size."""
    headroom = target.headroom_gib
    if headroom is not None and not 0 <= headroom <= MOST_GIB:
        raise InputError(f"--headroom-gib {headroom:g} is no memory size in GiB")
    if not target.describe():
        raise InputError(
            "no target is named",
            hint="--tokens N, --requests N, --context N, --host-tokens N, --headroom-gib N or --workload FILE",
        )
