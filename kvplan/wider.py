"""The tensor-parallel width at which a launch starts whose weights leave nothing for KV."""

from __future__ import annotations

import msgspec

from kvplan.errors import KvplanError
from kvplan.planner import Launch, plan
from kvplan.sizing.plan import Plan

WIDEST = 256


def wider(launch: Launch) -> str | None:
    """`--tp-size 4 → 123,456 tokens`; None where no width starts, or the weights are those of one."""
    memory = launch.memory
    if memory.free_after_gib is not None or memory.weights_gib is not None:
        return None
    width = 2 * (launch.args.tp_size or 1)
    while width <= WIDEST:
        found = planned_at(launch, width)
        if found is not None:
            return f"--tp-size {width} → {found.tokens:,} tokens"
        width *= 2
    return None


def planned_at(launch: Launch, width: int) -> Plan | None:
    """The launch over so many ranks; None where it is refused or does not start."""
    args = msgspec.structs.replace(launch.args, tp_size=width)
    try:
        planned = plan(msgspec.structs.replace(launch, args=args))
    except KvplanError:
        return None
    return planned.outcome if planned.starts and isinstance(planned.outcome, Plan) else None
