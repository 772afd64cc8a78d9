"""The suspicion that a time column was read in the wrong unit."""

from __future__ import annotations

from kvplan.replay.workloads.clock import SECOND
from kvplan.replay.workloads.order import Order

MAX_RPS = 1e4
MIN_RPS = 1e-4


def median_rps(order: Order) -> float | None:
    """Requests per second by the median gap; rows that share a time count together."""
    num_gaps, seen = sum(order.gaps), 0
    for bits, count in enumerate(order.gaps):
        seen += count
        if count and 2 * seen >= num_gaps:
            gap_s = 0.75 * (1 << bits) / SECOND
            return order.num_rows / (num_gaps + 1) / gap_s
    return None


def unit_warning(order: Order, *, flag: bool) -> str | None:
    """A question about the unit where the pace is beyond belief; `flag` says that one sets it."""
    rps = median_rps(order)
    if rps is None or MIN_RPS <= rps <= MAX_RPS:
        return None
    question = "is the time unit right? (--time-unit)" if flag else "are the times right?"
    return f"the median gap means {rps:.3g} requests a second: {question}"
