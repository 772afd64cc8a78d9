"""Forms of pools that are built but not replayed: what their slots ask for has no rule in the model."""

from __future__ import annotations

from kvplan.errors import InputError
from kvplan.sizing.plan import Plan


def refuse_other_forms(plan: Plan) -> None:
    """InputError for pools whose slots the scheduling model counts and cannot address."""
    resolved = plan.resolved
    for asked, problem in (
        (resolved.unified_memory, "both sides of a unified buffer share its bytes as they run"),
        (resolved.kv_shards > 1, "sharded pages are spread over ranks, unevenly as they come"),
        (resolved.request_ring is not None, "windows in the rings of request rows have no slots"),
        (resolved.hisparse is not None, "the swap of HiSparse decides what is on the device"),
    ):
        if asked:
            raise InputError(
                f"such pools are not replayed: {problem}",
                hint="use --engine accounting; 'kvplan inspect --allocate' builds them",
            )
