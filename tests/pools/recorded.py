"""Plans of the recorded sizings, and what they say their pools take."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from kvplan.conformance import plan_case
from kvplan.pools.build import Pools
from kvplan.sizing.compressed_tensors import ring_tensors
from kvplan.sizing.draft_tensors import draft_tensors
from kvplan.sizing.plan import Plan
from kvplan.sizing.tensors import stage_tensors


@cache
def recorded_cases(folder: Path) -> dict[str, dict[str, Any]]:
    """Cases that the engine served, by id."""
    records = (
        json.loads(line)
        for path in sorted(folder.glob("sizing-*.jsonl"))
        for line in path.read_text().splitlines()
    )
    return {
        record["case"]["id"]: record["case"]
        for record in records
        if "error" not in record["answer"]
    }


def recorded_plans(folder: Path) -> Iterator[tuple[str, Plan]]:
    """Plans of one stage each."""
    for name, case in recorded_cases(folder).items():
        plan = plan_case(case)
        assert plan is not None
        yield name, plan


def planned_bytes(plan: Plan) -> dict[str, int]:
    """Bytes of each pool as the ledger counts them, without torch."""
    stage = plan.stages[0]
    sums: Counter[str] = Counter()
    for tensor in (*stage_tensors(plan, stage), *ring_tensors(stage), *draft_tensors(plan, stage)):
        sums[tensor.pool] += tensor.num_bytes
    return dict(+sums)


def built_bytes(pools: Pools) -> dict[str, int]:
    """Bytes of each pool as torch counts them."""
    sums: Counter[str] = Counter()
    for part, entries in pools.parts().items():
        sums[part] += sum(entry.tensor.nbytes for entry in entries if not entry.is_view)
    return dict(+sums)
