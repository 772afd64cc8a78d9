"""Where two answers differ, field by field: what records compare and how closely."""

from __future__ import annotations

import math
from typing import Any

RELATIVE = 1e-9  # floats of the records agree within this
DEFAULTS_ONLY = ("attention_backend", "decode_graph_max_bs", "max_prefill_tokens")
PLACEHOLDERS = ("head_dim", "v_head_dim", "kv_heads_per_rank")  # of latent caches


def differences(case_id: str, ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """One line per compared field that differs; [] when the answers agree."""
    if "error" in theirs or "error" in ours:
        mine = ours.get("error", {}).get("kind")
        other = theirs.get("error", {}).get("kind")
        if mine == other:
            return []
        return [f"error: {ours.get('error', 'none')} instead of {theirs.get('error', 'none')}"]
    found = []
    for section in ("resolved", "reserves", "model", "pool", "host"):
        skip = skipped_fields(section, case_id, theirs)
        found += compare(section, ours.get(section), theirs.get(section), skip)
    return found


def skipped_fields(section: str, case_id: str, theirs: dict[str, Any]) -> tuple[str, ...]:
    """Fields that a record of this kind does not speak for."""
    if section == "resolved" and "-defaults-" not in case_id:
        return DEFAULTS_ONLY
    if section == "model":
        latent = theirs["model"]["attention_arch"] == "MLA"
        compressed = bool(theirs["pool"]["c128_max_total_num_tokens"])
        return PLACEHOLDERS if latent or compressed else ()
    return ()


def compare(path: str, ours: Any, theirs: Any, skip: tuple[str, ...] = ()) -> list[str]:
    """Differences below one path; every field of the record must be matched."""
    if isinstance(theirs, dict):
        if not isinstance(ours, dict):
            return [f"{path}: {ours!r} instead of {theirs!r}"]
        return [
            line
            for key, value in theirs.items()
            if key not in skip
            for line in compare(f"{path}.{key}", ours.get(key), value)
        ]
    if isinstance(theirs, list):
        if not isinstance(ours, list) or len(ours) != len(theirs):
            return [f"{path}: {ours!r} instead of {theirs!r}"]
        pairs = zip(ours, theirs, strict=True)
        return [
            line
            for index, (mine, other) in enumerate(pairs)
            for line in compare(f"{path}[{index}]", mine, other)
        ]
    if isinstance(theirs, float) and isinstance(ours, int | float):
        close = math.isclose(ours, theirs, rel_tol=RELATIVE, abs_tol=0)
        return [] if close else [f"{path}: {ours!r} instead of {theirs!r}"]
    return [] if ours == theirs else [f"{path}: {ours!r} instead of {theirs!r}"]
