"""Replays the engine's recorded answers and names each difference."""

from __future__ import annotations

from typing import Any

from kvplan.replay.keys import TokenKey
from kvplan.replay.prefix_cache import Node, PrefixCache, Slots, path_slots


def prefix_tree_differences(trace: dict[str, Any]) -> list[str]:
    """What the prefix cache answers otherwise than a recorded trace (golden `prefix-tree`)."""
    released: list[int] = []
    cache = PrefixCache(
        trace["page_size"], lambda slots: released.extend(list_of(slots)), trace["policy"]
    )
    locks: dict[int, Node] = {}
    differences: list[str] = []
    for index, op in enumerate(trace["ops"]):
        answer = apply_tree_op(cache, locks, released, op)
        answer["after"] = {
            "evictable": cache.evictable,
            "protected": cache.protected,
            "total": cache.evictable + cache.protected,
        }
        differences += [
            f"op {index} ({op['op']}) {field}: {value!r}, recorded {op[field]!r}"
            for field, value in answer.items()
            if value != op[field]
        ]
    return differences


def apply_tree_op(
    cache: PrefixCache, locks: dict[int, Node], released: list[int], op: dict[str, Any]
) -> dict[str, Any]:
    """Run one recorded operation; what it answers."""
    match op["op"]:
        case "insert":
            return {"prefix_len": cache.insert(TokenKey(op["tokens"]), op["slots"]).prefix_len}
        case "match":
            found = cache.match(TokenKey(op["tokens"]), len(op["tokens"]))
            if "lock" in op:
                locks[op["lock"]] = found.node
                cache.lock(found.node)
            slots = [slot for run in path_slots(found.node) for slot in list_of(run)]
            return {"prefix_len": found.prefix_len, "slots": slots}
        case "unlock":
            cache.unlock(locks.pop(op["lock"]))
            return {}
        case "evict":
            released.clear()
            evicted = cache.evict(op["num_tokens"])
            return {"evicted": evicted, "slots": list(released)}
    raise ValueError(f"unknown operation {op['op']!r}")


def list_of(slots: Slots) -> list[int]:
    return [int(slot) for slot in slots]  # type: ignore[attr-defined]
