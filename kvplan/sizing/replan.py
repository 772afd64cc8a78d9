"""The same launch with other server arguments, resolved afresh: what a changed flag really gives."""

from __future__ import annotations

from typing import Any

import msgspec

from kvplan.errors import CombinationError
from kvplan.sizing.plan import NoStart, Plan, plan_launch
from kvplan.sizing.resolve.mem_fraction import AITER_FACTOR
from kvplan.sizing.resolve.resolve import resolve
from kvplan.sizing.resolved import Resolved


def replanned(outcome: Plan | NoStart, **arguments: Any) -> Plan | None:
    """The launch with some arguments changed; None where it is refused or does not start."""
    before = outcome.resolved
    args = msgspec.structs.replace(before.asked, **arguments)
    try:
        resolved = resolve(args, outcome.model, outcome.gpu, outcome.draft)
        free = before.hicache.host_free_bytes
        if free is not None:
            host = msgspec.structs.replace(resolved.hicache, host_free_bytes=free)
            resolved = msgspec.structs.replace(resolved, hicache=host)
        other = plan_launch(outcome.model, outcome.gpu, resolved, outcome.memory, outcome.draft)
    except CombinationError:
        return None
    return other if isinstance(other, Plan) else None


def asked_fraction(resolved: Resolved) -> float:
    """mem_fraction_static as a launch would give it: before aiter takes its share."""
    origin = resolved.provenance.get("mem_fraction_static")
    taken = AITER_FACTOR if origin is not None and origin.rule == "aiter" else 1
    return resolved.asked.mem_fraction_static or resolved.mem_fraction_static / taken
