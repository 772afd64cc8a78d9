"""Where a token lives: row, slot, page, and in each layer's buffers the bytes; and who has a slot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvplan.errors import InputError, nearest
from kvplan.report.regions import (
    Region,
    layer_row,
    row_ring_slot,
    slot_regions,
    whole_row,
    window_ring_slot,
)
from kvplan.report.ring_regions import ring_regions
from kvplan.sizing.plan import Plan, StagePlan
from kvplan.sizing.pool_layout import LaidTensor, stage_layout
from kvplan.sizing.resolved import Resolved
from kvplan.sizing.tensor import TensorPlan
from kvplan.state.ownership import holders
from kvplan.state.recorded import HeldRow, Recorded, RecordedState
from kvplan.words import printable

ENTRY_BYTES = 4  # of req_to_token
SHOWN_NAMES = 12
RATIOS = {"c4": 4, "c128": 128}


class Spot(NamedTuple):
    """A token's numbers. `slot` counts over all decode-context ranks; None: not there, or not known.

    rid, row and position are of the request that was asked for, or of the only one that has it.
    """

    slot: int
    sliding_slot: int | None = None
    row: int | None = None
    position: int | None = None
    state_slot: int | None = None
    rid: str | None = None


class Place(NamedTuple):
    """Bytes of one buffer. `layer` is None for what belongs to no layer."""

    pool: str
    buffer: str
    layer: int | None
    region: Region


def request_spot(recorded: Recorded, rid: str, position: int) -> Spot:
    """The spot of one position of a request; InputError for unknown requests and positions."""
    request = request_named(recorded, rid)
    passed = 0
    for first, count in request.slots:
        if position < passed + count:
            return held_spot(recorded.state, request, first + position - passed, position)
        passed += count
    raise InputError(
        f"request {request.name} has no position {position}",
        where=recorded.where,
        hint=f"its positions are 0 to {passed - 1}" if passed else "it holds no slots",
    )


def request_named(recorded: Recorded, rid: str) -> HeldRow:
    """A request of the state by its name."""
    requests = {each.rid: each for each in recorded.state.requests}
    if rid not in requests:
        problem = f"no request is named '{printable(rid)}'"
        raise InputError(problem, where=recorded.where, hint=other_names(rid, list(requests)))
    return requests[rid]


def other_names(rid: str, known: list[str]) -> str:
    """The nearest name, else the first of all."""
    close = nearest(rid, known)
    if close is not None:
        return f"did you mean '{printable(close)}'?"
    more = f", and {len(known) - SHOWN_NAMES:,} more" if len(known) > SHOWN_NAMES else ""
    names = ", ".join(f"'{printable(each)}'" for each in sorted(known)[:SHOWN_NAMES])
    return f"one of: {names}{more}" if known else "the state has no requests"


def slot_spot(recorded: Recorded, slot: int) -> Spot:
    """The spot of a slot of the main pool, with its request where one alone has it."""
    state = recorded.state
    last = state.kv.tokens + state.page_size - 1
    if not 0 <= slot <= last:
        raise InputError(
            f"there is no slot {slot}", where=recorded.where, hint=f"slots are 0 to {last}"
        )
    found = list(holders(state, slot))
    if len(found) == 1:
        return held_spot(state, found[0].request, slot, found[0].position)
    return Spot(slot, sliding_slot_of(state, slot))


def held_spot(state: RecordedState, request: HeldRow, slot: int, position: int) -> Spot:
    return Spot(
        slot=slot,
        sliding_slot=sliding_slot_of(state, slot),
        row=request.row,
        position=position,
        state_slot=request.state_slot,
        rid=request.rid,
    )


def sliding_slot_of(state: RecordedState, slot: int) -> int | None:
    """The sliding slot beside a full one; None where the window has left it."""
    for first, peer, count in state.full_to_swa:
        if first <= slot < first + count:
            return peer + slot - first
    return None


def places(plan: Plan, planned: StagePlan, spot: Spot) -> Iterator[Place]:
    """Every byte that a stage keeps for a token, tensor by tensor, layer by layer.

    Where ranks share one token space these are the places on the rank that owns the slot. What
    HiSparse swaps lies on the device by turns and is left out. InputError for a unified buffer.
    """
    refuse_moving(planned, spot)
    for laid in stage_layout(plan, planned):
        if laid.tensor.view_stride is not None:
            continue
        yield from tensor_places(plan, planned, laid, spot)


def refuse_moving(planned: StagePlan, spot: Spot) -> None:
    """A virtual slot has no bytes of its own."""
    if planned.pool.unified is not None:
        raise InputError(
            f"slot {spot.slot} has no fixed bytes: pages of a unified buffer move as they run",
            hint="'kvplan inspect' without a slot shows the views; pools.shared.to_full() says where a page is",
        )


def owner(resolved: Resolved, slot: int) -> tuple[int, int]:
    """The rank that keeps a logical slot, and its slot there."""
    if resolved.kv_shards > 1:
        page, offset = divmod(slot, resolved.page_size)
        local, rank = divmod(page, resolved.kv_shards)
        return rank, local * resolved.page_size + offset
    return slot % resolved.widths.attn_dcp, slot // resolved.widths.attn_dcp


def is_swapped(resolved: Resolved, tensor: TensorPlan) -> bool:
    """Whether HiSparse keeps rows of a tensor for the selected tokens alone."""
    swaps = tensor.pool == "kv" or (tensor.pool, tensor.name) == ("c4", "latent")
    return resolved.hisparse is not None and swaps and tensor.name != "index_key"


def tensor_places(plan: Plan, planned: StagePlan, laid: LaidTensor, spot: Spot) -> Iterator[Place]:
    """One tensor's part in a token."""
    tensor = laid.tensor
    if tensor.pool == "rows":
        regions = row_regions(laid, spot)
    elif tensor.pool == "state":
        yield from state_places(laid, spot)
        return
    elif tensor.pool == "allocator":
        regions = (whole_row(tensor, spot.slot),) if tensor.name == "full_to_swa" else ()
    else:
        regions = kv_regions(plan, planned, laid, spot)
    for layers in laid.layers_of_copies:
        for region in regions:
            layer = layers[0] if len(layers) == 1 else None
            yield Place(tensor.pool, tensor.name, layer, region)


def row_regions(laid: LaidTensor, spot: Spot) -> tuple[Region, ...]:
    """The request's entry in each table of rows; its own position in req_to_token."""
    if spot.row is None or spot.position is None:
        return ()
    row = whole_row(laid.tensor, spot.row)
    if laid.tensor.name != "req_to_token":
        return (row,)
    return (Region("slot", row.offset + spot.position * ENTRY_BYTES, ENTRY_BYTES),)


def state_places(laid: LaidTensor, spot: Spot) -> Iterator[Place]:
    """The request's state slot in every linear layer, and its snapshots."""
    tensor = laid.tensor
    snapshot = tensor.name.startswith("snapshot")
    number = spot.row if snapshot else spot.state_slot
    if number is None or tensor.name == "free_slots":
        return
    for index, layer in enumerate(laid.layers):
        region = layer_row(tensor, index, number)
        if region.length:
            yield Place(tensor.pool, tensor.name, layer, region)


def kv_regions(plan: Plan, planned: StagePlan, laid: LaidTensor, spot: Spot) -> tuple[Region, ...]:
    """The token's part of a KV tensor or of a ring of compression state."""
    stage, tensor, resolved = planned.stage, laid.tensor, planned.stage.resolved
    draft = tensor.pool == "draft KV"
    model = (plan.draft or plan.model) if draft and not planned.pool.compressed else stage.model
    slot = spot.sliding_slot if laid.slides else spot.slot
    ratio, page_size = RATIOS.get(tensor.pool, 1), resolved.page_size
    if tensor.name.endswith("state"):
        ring = ring_slot(planned, laid, spot)
        return () if ring is None else (whole_row(tensor, ring),)
    if resolved.request_ring is not None and tensor.name != "index_key":
        return ring_regions(planned, tensor, spot, ratio)
    if slot is None:
        return ()
    if tensor.pool == "scratch" or is_swapped(resolved, tensor):
        return ()
    if resolved.kv_shards > 1:
        _, slot = owner(resolved, slot)
    if tensor.name == "index_key":
        slot //= model.indexer.kpool if model.indexer is not None else ratio
    elif not draft:
        slot = slot // resolved.widths.attn_dcp // ratio
    return slot_regions(tensor, slot, model, page_size // ratio)


def ring_slot(planned: StagePlan, laid: LaidTensor, spot: Spot) -> int | None:
    """Where a token's compression state lies in its ring."""
    resolved = planned.stage.resolved
    by_row = not laid.slides or resolved.request_ring is not None
    if not by_row:
        return None if spot.sliding_slot is None else window_ring_slot(resolved, spot.sliding_slot)
    if spot.row is None or spot.position is None:
        return None
    return row_ring_slot(resolved, spot.row, spot.position, RATIOS[laid.tensor.pool])
