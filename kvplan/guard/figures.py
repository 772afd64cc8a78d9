"""The figures of a plan that budgets bound, locks record and diffs compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from kvplan.sizing.capacity import capacity_at
from kvplan.sizing.ledger import ledger
from kvplan.sizing.plan import Plan, StagePlan
from kvplan.units import GIB, MIB

Figures = dict[str, int | float]


class Kind(msgspec.Struct, frozen=True):
    """What a figure counts. `capacity`: less of it is a regression."""

    title: str
    unit: str
    capacity: bool = False


KINDS: dict[str, Kind] = {
    "tokens": Kind("tokens of KV", "tokens", capacity=True),
    "sliding_tokens": Kind("tokens of the sliding pool", "tokens", capacity=True),
    "state_slots": Kind("recurrent state slots", "slots", capacity=True),
    "max_running_requests": Kind("running requests", "requests", capacity=True),
    "full_context_requests": Kind("full-context requests", "requests"),
    "host_tokens": Kind("tokens of the host tier", "tokens", capacity=True),
    "budget_bytes": Kind("KV budget", "bytes"),
    "token_bytes": Kind("a token", "bytes"),
    "row_width": Kind("row width", "positions"),
    "kv_bytes": Kind("KV pools", "bytes"),
    "state_bytes": Kind("recurrent state", "bytes"),
    "req_to_token_bytes": Kind("req_to_token", "bytes"),
    "weights_bytes": Kind("weights", "bytes"),
    "headroom_bytes": Kind("headroom", "bytes"),
    "host_bytes": Kind("host tier", "bytes"),
}
KV_PARTS = frozenset({"index keys", "compression state"})
STATE_PARTS = frozenset({"recurrent state", "snapshots"})
FREE_PARTS = frozenset({"unused budget", "graphs and activations"})


def figures(plan: Plan) -> Figures:
    """Every figure that the plan has. Bytes are of the fullest card, tokens of one DP rank."""
    books = [card_bytes(stage_entries(plan, stage)) for stage in plan.stages]
    narrowest = min((stage.pool for stage in plan.stages), key=lambda each: each.profiled_tokens)
    found = {
        "tokens": plan.tokens,
        "max_running_requests": plan.max_running_requests,
        "full_context_requests": capacity_at(plan, plan.resolved.context_length).requests,
        "budget_bytes": narrowest.budget.num_bytes,
        "token_bytes": narrowest.cell.num_bytes,
        "row_width": plan.reserves.row_width,
        **{name: max(book[name] for book in books) for name in books[0]},
        "headroom_bytes": min(book["headroom_bytes"] for book in books),
        **pool_figures(plan),
        **host_figures(plan),
    }
    return in_order(found)


def in_order(known: Mapping[str, int | float | None]) -> Figures:
    """Figures in the order of the table, those that are not known left out."""
    values = {name: known.get(name) for name in KINDS}
    return {name: value for name, value in values.items() if value is not None}


def stage_entries(plan: Plan, stage: StagePlan) -> list[tuple[str, int]]:
    """Uses of a stage's card as (name, bytes)."""
    return [(entry.name, entry.num_bytes) for entry in ledger(plan, stage).entries]


def card_bytes(entries: Iterable[tuple[str, int]]) -> Figures:
    """Sums over a card's uses. Headroom is what is free once the pools stand."""
    found: Figures = {
        "kv_bytes": 0,
        "weights_bytes": 0,
        "req_to_token_bytes": 0,
        "headroom_bytes": 0,
    }
    for name, num_bytes in entries:
        figure = figure_of_use(name)
        if figure is not None:
            found[figure] = found.get(figure, 0) + num_bytes
    return found


def figure_of_use(name: str) -> str | None:
    """The figure that a use of the card counts in, None for driver, tables and free lists."""
    if name.endswith("KV") or name in KV_PARTS:
        return "kv_bytes"
    if name in STATE_PARTS:
        return "state_bytes"
    if name in FREE_PARTS:
        return "headroom_bytes"
    return {"weights": "weights_bytes", "req_to_token": "req_to_token_bytes"}.get(name)


def pool_figures(plan: Plan) -> Figures:
    """Sizes that only some kinds of model have."""
    found: Figures = {}
    sides = [stage.pool.sliding or stage.pool.compressed for stage in plan.stages]
    sliding = [side.sliding_tokens for side in sides if side is not None]
    if sliding:
        found["sliding_tokens"] = min(sliding)
    states = [stage.pool.budget.state for stage in plan.stages]
    slots = [state.slots for state in states if state is not None]
    if slots:
        found["state_slots"] = min(slots)
    return found


def host_figures(plan: Plan) -> Figures:
    """The host tier: tokens of one rank, bytes of all ranks on the machine where they are known."""
    if not plan.resolved.hicache.enabled:
        return {}
    from kvplan.sizing.host import rank_bytes

    found: Figures = {"host_tokens": min(stage.host[0].size for stage in plan.stages)}
    sizes = [rank_bytes(stage.stage, stage.host) for stage in plan.stages]
    known = [size for size in sizes if size is not None]
    if len(known) == len(sizes):
        found["host_bytes"] = max(known) * plan.resolved.hicache.ranks_per_host
    return found


def shown(name: str, value: float) -> str:
    """A figure with its unit, bytes as GiB, MiB or B."""
    unit = KINDS[name].unit
    if unit != "bytes":
        return f"{value:,} {unit if value != 1 else unit[:-1]}"
    if abs(value) >= GIB / 10:
        return f"{value / GIB:,.2f} GiB"
    return f"{value / MIB:,.2f} MiB" if abs(value) >= MIB else f"{value:,.6g} B"
