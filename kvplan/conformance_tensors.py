"""The tensors of a recorded case's pools, in the form of the engine's own list."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kvplan.conformance import Case, plan_case
from kvplan.errors import InputError

RINGS = ("state", "index_state")


def tensors(case: Case) -> list[dict[str, Any]]:
    """Every tensor of a case's pools as `meta` builds it: count, shape, dtype, stride, view.

    The case is one of `golden/sizing*.jsonl`; its draft's own pools and the state rings of
    DeepSeek-V4 are not part of those records.
    """
    from kvplan.pools.build import build

    plan = plan_case(case)
    if plan is None:
        raise InputError(
            f"the engine refuses the case '{case['id']}', so it has no tensors",
            hint="ask for its error: kvplan.conformance.answer",
        )
    pools = build(plan, "meta")
    counts: Counter[tuple[str, str, tuple[int, ...], str, tuple[int, ...], bool]] = Counter()
    for part, entries in pools.parts().items():
        for entry in entries:
            if part == "draft KV" or entry.name in RINGS:
                continue
            tensor = entry.tensor
            dtype = str(tensor.dtype).removeprefix("torch.")
            key = (part, entry.name, tuple(tensor.shape), dtype, tensor.stride(), entry.is_view)
            counts[key] += 1
    return [
        {
            "pool": pool,
            "name": name,
            "count": count,
            "shape": list(shape),
            "dtype": dtype,
            "stride": list(stride),
            "view": view,
        }
        for (pool, name, shape, dtype, stride, view), count in counts.items()
    ]
