"""Where DeepSeek-V4 keeps a token whose window lies in the ring of its request row."""

from __future__ import annotations

from typing import Protocol

from kvplan.report.regions import Region, whole_row
from kvplan.sizing.compressed import request_slots
from kvplan.sizing.plan import StagePlan
from kvplan.sizing.request_ring import fp8_row_used, ring_tokens
from kvplan.sizing.tensor import TensorPlan


class Numbers(Protocol):
    """What of a token is asked for."""

    @property
    def slot(self) -> int: ...
    @property
    def row(self) -> int | None: ...
    @property
    def position(self) -> int | None: ...


def ring_regions(
    planned: StagePlan, tensor: TensorPlan, spot: Numbers, ratio: int
) -> tuple[Region, ...]:
    """Its row in the window's ring, and behind all rings the latent of its group."""
    resolved, compressed = planned.stage.resolved, planned.stage.model.compressed
    assert compressed is not None
    ring = ring_tokens(resolved, compressed.window)
    rows = []
    if spot.row is not None and spot.position is not None:
        rows.append(spot.row * ring + spot.position % ring)
    if ratio > 1:
        rings = request_slots(resolved, planned.pool.requests.max_running) * ring
        rows.append(rings + spot.slot // ratio)
    return tuple(latent_row(tensor, row, compressed.qk_nope_head_dim) for row in rows)


def latent_row(tensor: TensorPlan, row: int, nope_dim: int) -> Region:
    """A row; fp8 ones hold their values and scales, then bytes that nobody reads."""
    whole = whole_row(tensor, row)
    if tensor.dtype != "float8_e4m3fn":
        return whole
    return whole._replace(length=fp8_row_used(nope_dim))
