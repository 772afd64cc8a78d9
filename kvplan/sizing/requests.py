"""How many requests may run at once, and what bounds them."""

from __future__ import annotations

import msgspec

from kvplan.sizing.capacities import StatePool
from kvplan.sizing.resolved import Resolved
from kvplan.sizing.shortage import Shortage

TOKENS_PER_CONTEXT = 512  # requests the engine expects to share one context of tokens
DEFAULT_RANGE = (2048, 4096)


class RequestBound(msgspec.Struct, frozen=True):
    """One upper bound on max_running_requests of a DP rank."""

    name: str
    requests: int
    flag: str


class Requests(msgspec.Struct, frozen=True):
    """max_running_requests of one DP rank, with every bound on it."""

    max_running: int
    bounds: tuple[RequestBound, ...]

    @property
    def binding(self) -> RequestBound:
        """The first of the smallest bounds."""
        return min(self.bounds, key=lambda bound: bound.requests)


def running_requests(
    resolved: Resolved, tokens: int, state: StatePool | None
) -> Requests | Shortage:
    """max_running_requests from the tokens of the pool, the launch and the state slots."""
    bounds = [
        asked_bound(resolved, tokens),
        RequestBound("two tokens a request", tokens // 2, "--mem-fraction-static"),
    ]
    if state is not None:
        cap = state.slots // state.slots_per_request
        bounds.append(RequestBound("state slots", cap, "--max-mamba-cache-size"))
        if min(bound.requests for bound in bounds) <= 0:
            return too_few_slots(state, cap)
    return Requests(min(bound.requests for bound in bounds), tuple(bounds))


def asked_bound(resolved: Resolved, tokens: int) -> RequestBound:
    """The launch's own number over the DP ranks, or the engine's guess from the tokens."""
    if resolved.max_running_requests is not None:
        asked = max(1, resolved.max_running_requests // resolved.widths.attn_dp)
        name, origin = "--max-running-requests", resolved.provenance.get("max_running_requests")
        if origin is not None and origin.source == "default":
            name = f"engine default ({origin.rule})"
        return RequestBound(name, asked, "--max-running-requests")
    low, high = DEFAULT_RANGE
    guess = int(tokens / resolved.context_length * TOKENS_PER_CONTEXT)
    return RequestBound("engine default", max(min(guess, high), low), "--max-running-requests")


def too_few_slots(state: StatePool, cap: int) -> Shortage:
    return Shortage(
        what="requests",
        problem=f"{state.slots} state slots at {state.slots_per_request} a request serve {cap} requests",
        have_bytes=state.slots * state.slot_bytes,
        need_bytes=state.slots_per_request * state.slot_bytes,
        raise_flags=("--mem-fraction-static", "--max-mamba-cache-size"),
        lower_flags=("--max-running-requests",),
    )
