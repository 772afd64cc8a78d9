"""The scheduler's capacities and settings that follow from a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec

from kvplan.errors import InputError
from kvplan.replay.eviction import POLICIES as EVICTION_POLICIES
from kvplan.replay.server import Server, SlidingPool, Speculation, StatePool
from kvplan.sizing.plan import Plan
from kvplan.sizing.recurrent import tracking_slots
from kvplan.sizing.resolve.mamba import DEFAULT_TRACK_INTERVAL, STATE_CHUNK
from kvplan.sizing.state_tensors import physical_slots, tracks


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """What steers the scheduler and has no say in sizing: server arguments, and what drafts bring.

    `accept_len` is tokens that a speculative step brings a request; None: 2, or what it may take.
    """

    schedule_policy: Literal["fcfs", "lpm"] = "fcfs"
    conservativeness: float = 1.0
    eviction_policy: str = "lru"
    mixed_chunk: bool = False
    accept_len: float | None = None


POLICIES = ("fcfs", "lpm")
MODELLED = (
    *("schedule_policy", "schedule_conservativeness", "radix_eviction_policy"),
    *("enable_mixed_chunk", "disable_chunked_prefix_cache"),
)
MAX_CONSERVATIVENESS = 1000.0
ACCEPT_LEN = 2.0  # tokens that a step with drafts brings, where nothing is said


def read_choices(
    policy: str,
    conservativeness: float,
    eviction: str,
    *,
    mixed_chunk: bool = False,
    accept_len: float | None = None,
) -> Choices:
    """Choices as a user writes them; InputError for one that the engine does not have."""
    if policy not in POLICIES:
        raise InputError(
            f"the replay does not model the schedule policy '{policy}'",
            hint="it models fcfs and lpm",
        )
    if not 0 <= conservativeness <= MAX_CONSERVATIVENESS:
        raise InputError(
            f"a schedule conservativeness of {conservativeness:g}", hint="1.0 is the engine's own"
        )
    if eviction not in EVICTION_POLICIES:
        raise InputError(
            f"the replay does not model the eviction policy '{eviction}'",
            hint="it models lru, lfu and slru; a budget also takes fifo, filo and mru",
        )
    return Choices(
        schedule_policy=cast(Literal["fcfs", "lpm"], policy),
        conservativeness=conservativeness,
        eviction_policy=eviction,
        mixed_chunk=mixed_chunk,
        accept_len=accept_len,
    )


def launch_choices(scheduling: Mapping[str, Any], accept_len: float | None = None) -> Choices:
    """Choices from a launch's server arguments by field name; those not modelled are left out."""
    engine = Choices()
    return read_choices(
        scheduling.get("schedule_policy", engine.schedule_policy),
        scheduling.get("schedule_conservativeness", engine.conservativeness),
        scheduling.get("radix_eviction_policy", engine.eviction_policy),
        mixed_chunk=bool(scheduling.get("enable_mixed_chunk", False)),
        accept_len=accept_len,
    )


def not_modelled(scheduling: Mapping[str, Any]) -> tuple[str, ...]:
    """Server arguments that would change a replay in ways that no rule covers."""
    return tuple(
        f"'{field}' changes the schedule in ways that the replay does not model"
        for field in scheduling
        if field not in MODELLED
    )


def server_of(plan: Plan, choices: Choices | None = None) -> Server:
    """One DP rank of a planned launch, as its scheduler sees it; sizes in tokens.

    Under decode context parallelism a page of the allocator spans all its ranks. InputError for
    pools that no scheduling rule covers.
    """
    choices = choices or Choices()
    resolved, ranks = plan.resolved, plan.resolved.widths.attn_dcp
    chunk = resolved.chunked_prefill_size
    return Server(
        page_size=plan.reserves.alloc_page_size,
        num_tokens=plan.tokens * ranks,
        num_rows=plan.rows - 1,
        row_width=plan.reserves.row_width,
        max_running_requests=plan.max_running_requests,
        context_len=resolved.context_length,
        chunked_prefill_size=chunk if chunk > 0 else None,
        max_prefill_tokens=resolved.max_prefill_tokens,
        prefix_cache=resolved.radix_cache,
        eviction_policy=choices.eviction_policy,
        schedule_policy=choices.schedule_policy,
        conservativeness=choices.conservativeness,
        overlap=resolved.overlap_schedule,
        sliding=sliding_side(plan),
        states=state_slots(plan),
        speculation=speculation(plan, choices.accept_len),
        mixed_chunk=choices.mixed_chunk,
    )


def state_slots(plan: Plan) -> StatePool | None:
    """Slots of recurrent state, the least of all stages that have some."""
    pools = [
        physical_slots(plan, stage) for stage in plan.stages if stage.pool.budget.state is not None
    ]
    if plan.model.linear is None or not pools:
        return None
    page, tracked = plan.reserves.alloc_page_size, tracks(plan.resolved)
    return StatePool(
        num_slots=min(pools),
        tracking_slots=tracking_slots(plan.resolved) if tracked else 0,
        grid=max(STATE_CHUNK, page) if tracked else 1,
        interval=plan.resolved.asked.mamba_track_interval or DEFAULT_TRACK_INTERVAL,
    )


def speculation(plan: Plan, accept_len: float | None) -> Speculation | None:
    """What drafts take and bring; InputError where they bring more than they may take."""
    if plan.resolved.speculation.algorithm is None:
        if accept_len is not None:
            raise InputError("an acceptance without drafts", hint="leave --accept-len out")
        return None
    alloc_len = plan.reserves.alloc_len_per_decode
    if accept_len is None:
        accept_len = min(ACCEPT_LEN, alloc_len)
    return Speculation(alloc_len=alloc_len, accept_len=accept_len)


def sliding_side(plan: Plan) -> SlidingPool | None:
    """The second pool of a launch that has one; the least of all stages that hold some of it."""
    reach = plan.model.sliding or plan.model.compressed
    sides = [stage.pool.sliding or stage.pool.compressed for stage in plan.stages]
    present = [side for side in sides if side is not None and side.sliding_tokens]
    if reach is None or not present:
        return None
    if any(not side.full_tokens for side in present):
        raise InputError(
            f"every layer of '{plan.model.name}' slides: such pools are not replayed",
            hint="'kvplan size' says what they hold",
        )
    num_tokens, page = min(s.sliding_tokens for s in present), plan.reserves.alloc_page_size
    if num_tokens < page:
        raise InputError(
            f"the sliding pool of {num_tokens:,} tokens holds no page of {page:,}",
            hint="'kvplan fit' finds launches with more memory",
        )
    return SlidingPool(window=reach.window, num_tokens=num_tokens)
