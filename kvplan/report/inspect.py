"""Everything `kvplan inspect` answers, as plain values: layout, addresses, occupancy, allocation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kvplan.report.address import Place, Spot, owner, places
from kvplan.report.inspect_words import is_sound, verdict
from kvplan.report.occupancy import occupancy_report
from kvplan.sizing.ledger import ledger
from kvplan.sizing.plan import NoStart, Plan, StagePlan
from kvplan.sizing.pool_layout import LaidTensor, stage_layout, totals
from kvplan.state.checks import NOBODY
from kvplan.state.ownership import holders, is_cached
from kvplan.state.recorded import Recorded

if TYPE_CHECKING:
    from kvplan.pools.allocation import Allocation

SCHEMA = "kvplan.inspect/1"


class Subject(NamedTuple):
    """What is looked at: a plan's stages, a recorded state, one token, pools that were built."""

    plan: Plan | None = None
    pp_ranks: tuple[int, ...] = (0,)
    recorded: Recorded | None = None
    spot: Spot | None = None
    allocations: Sequence[Allocation] = ()  # of a stage each

    @property
    def stages(self) -> list[StagePlan]:
        """The stages that are looked at."""
        return [] if self.plan is None else [self.plan.stages[rank] for rank in self.pp_ranks]


def inspect_report(subject: Subject, *, warnings: tuple[str, ...] = ()) -> dict[str, Any]:
    """The whole answer; parts that were not asked for are null."""
    plan, recorded, spot = subject.plan, subject.recorded, subject.spot
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "model": None if plan is None else plan.model.name,
        "gpu": None if plan is None else plan.gpu.name,
        "page_size": page_size_of(subject),
        "layout": [layout_report(plan, stage) for stage in subject.stages] if plan else None,
        "occupancy": None if recorded is None else occupancy_report(recorded),
        "address": None if spot is None else address_report(subject, spot),
        "allocation": [
            allocation_report(built, stage)
            for built, stage in zip(subject.allocations, subject.stages, strict=False)
        ]
        or None,
        "warnings": list(warnings),
    }
    report["verdict"] = {"sound": is_sound(report), "text": verdict(report)}
    return report


def refusal_report(refused: NoStart, *, warnings: tuple[str, ...] = ()) -> dict[str, Any]:
    """A launch that does not start has no pools to look at."""
    text = f"does not start: {refused.shortage.problem}"
    return {
        "schema": SCHEMA,
        "model": refused.model.name,
        "gpu": refused.gpu.name,
        "verdict": {"sound": False, "text": text},
        "warnings": [*warnings, "'kvplan size' shows what would start it"],
    }


def page_size_of(subject: Subject) -> int:
    """The allocator's page, over all decode-context ranks."""
    if subject.recorded is not None:
        return subject.recorded.state.page_size
    assert subject.plan is not None
    return subject.plan.reserves.alloc_page_size


def layout_report(plan: Plan, planned: StagePlan) -> dict[str, Any]:
    """One stage: every tensor, and their sums beside the ledger's."""
    laid = stage_layout(plan, planned)
    sums = totals(laid, ledger(plan, planned))
    span = planned.stage.span
    return {
        "pp_rank": planned.stage.pp_rank,
        "layers": [span.start, span.stop],
        "tensors": [tensor_report(each) for each in laid],
        "totals": [
            {"name": each.name, "bytes": each.num_bytes, "ledger_bytes": each.ledger_bytes}
            for each in sums
        ],
        "num_tensors": sum(each.tensor.copies for each in laid if not each.tensor.view_stride),
        "total_bytes": sum(each.num_bytes for each in sums),
        "ledger_bytes": sum(each.ledger_bytes for each in sums),
    }


def tensor_report(laid: LaidTensor) -> dict[str, Any]:
    tensor = laid.tensor
    return {
        "pool": tensor.pool,
        "name": tensor.name,
        "copies": tensor.copies,
        "layers": list(laid.layers),
        "shape": list(tensor.shape),
        "dtype": tensor.dtype,
        "stride": list(laid.stride),
        "is_view": tensor.view_stride is not None,
        "bytes": tensor.num_bytes,
    }


def address_report(subject: Subject, spot: Spot) -> dict[str, Any]:
    """One token: its numbers, who holds them, and its bytes on every stage that is looked at."""
    plan, page_size = subject.plan, page_size_of(subject)
    rank, local = (0, spot.slot) if plan is None else owner(plan.resolved, spot.slot)
    sliding = spot.sliding_slot
    return {
        **holder_report(subject.recorded, spot),
        "rid": spot.rid,
        "row": spot.row,
        "position": spot.position,
        "slot": spot.slot,
        "page": spot.slot // page_size,
        "page_offset": spot.slot % page_size,
        "sliding_slot": sliding,
        "sliding_page": None if sliding is None else sliding // page_size,
        "left_window": has_left_window(subject.recorded, spot),
        "state_slot": spot.state_slot,
        "dcp_rank": rank,
        "dcp_slot": local,
        "stages": [
            {
                "pp_rank": stage.stage.pp_rank,
                "layers": [stage.stage.span.start, stage.stage.span.stop],
                "places": [place_report(each) for each in places(plan, stage, spot)],
            }
            for stage in subject.stages
            if plan is not None
        ],
    }


def holder_report(recorded: Recorded | None, spot: Spot) -> dict[str, Any]:
    """What a slot is in a recorded state, and every request that has it."""
    if recorded is None:
        return {"class": None, "holders": None}
    found = list(holders(recorded.state, spot.slot))
    return {
        "class": slot_class(recorded, spot, len(found)),
        "holders": [
            {"rid": each.request.rid, "row": each.request.row, "position": each.position}
            for each in found
        ],
    }


def slot_class(recorded: Recorded, spot: Spot, num_holders: int) -> str:
    """Padding, used, shared, cached or unused: nobody's, on a free page or behind a last token."""
    if spot.slot < recorded.state.page_size:
        return "padding"
    if is_cached(recorded.state, spot.slot):
        return "shared" if num_holders else "cached"
    return "used" if num_holders else "unused"


def has_left_window(recorded: Recorded | None, spot: Spot) -> bool:
    """Whether a slot that is held has no sliding slot beside it any more."""
    if recorded is None or recorded.state.sliding is None or spot.sliding_slot is not None:
        return False
    return recorded.owners.kv[spot.slot] != NOBODY


def place_report(place: Place) -> dict[str, Any]:
    region = place.region
    return {
        "pool": place.pool,
        "buffer": place.buffer,
        "layer": place.layer,
        "what": region.what,
        "offset_bytes": region.offset,
        "length_bytes": region.length,
        "repeats": [{"count": count, "stride_bytes": stride} for count, stride in region.repeats],
        "bytes": region.num_bytes,
    }


def allocation_report(allocation: Allocation, planned: StagePlan) -> dict[str, Any]:
    """Planned and built bytes of one stage's tensors."""
    tensors = [each._asdict() for each in allocation.tensors]
    span = planned.stage.span
    return {
        "pp_rank": planned.stage.pp_rank,
        "layers": [span.start, span.stop],
        "device": allocation.device,
        "kv_scale": allocation.kv_scale,
        "as_planned": allocation.as_planned,
        "tensors": tensors,
        "planned_bytes": sum(each["planned_bytes"] for each in tensors),
        "built_bytes": sum(each["built_bytes"] for each in tensors),
        "cuda": None if allocation.cuda is None else allocation.cuda._asdict(),
    }
