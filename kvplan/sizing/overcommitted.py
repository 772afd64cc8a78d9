"""Pools and tables that take more than the card has: the engine sizes them and runs out of memory."""

from __future__ import annotations

from kvplan.sizing.ledger import ledger
from kvplan.sizing.plan import Plan


def missing_bytes(plan: Plan) -> int:
    """Bytes that the fullest card lacks once every pool and table stands; 0 where they fit."""
    return max(0, *(-ledger(plan, stage).left_bytes for stage in plan.stages))
