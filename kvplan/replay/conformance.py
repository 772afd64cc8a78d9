"""Replays the engine's recorded answers and names each difference."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from kvplan.replay.batch import Decode, Prefill, Step
from kvplan.replay.intake import Intake
from kvplan.replay.keys import TokenKey
from kvplan.replay.memory import KvMemory
from kvplan.replay.open_store import open_store
from kvplan.replay.prefix_cache import Lock, PrefixCache, Slots, path
from kvplan.replay.scheduler import Scheduler
from kvplan.replay.sequence import Sequence
from kvplan.replay.server import Server, SlidingPool
from kvplan.replay.sliding_store import SlidingStore
from kvplan.replay.store import KvStore
from kvplan.sizing.reserves import ROW_HEADROOM


def prefix_tree_differences(trace: dict[str, Any]) -> list[str]:
    """What the prefix cache answers otherwise than a recorded trace (golden `prefix-tree`)."""
    released: list[int] = []
    cache = PrefixCache(
        trace["page_size"], lambda slots: released.extend(list_of(slots)), trace["policy"]
    )
    locks: dict[int, Lock] = {}
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
    cache: PrefixCache, locks: dict[int, Lock], released: list[int], op: dict[str, Any]
) -> dict[str, Any]:
    """Run one recorded operation; what it answers."""
    match op["op"]:
        case "insert":
            return {"prefix_len": cache.insert(TokenKey(op["tokens"]), op["slots"]).prefix_len}
        case "match":
            found = cache.match(TokenKey(op["tokens"]), len(op["tokens"]))
            if "lock" in op:
                locks[op["lock"]] = cache.lock(found.node)
            slots = [slot for node in path(found.node) for slot in list_of(node.slots)]
            return {"prefix_len": found.prefix_len, "slots": slots}
        case "unlock":
            cache.unlock(locks.pop(op["lock"]))
            return {}
        case "evict":
            released.clear()
            evicted = cache.evict(op["num_tokens"])
            return {"evicted": evicted, "slots": list(released)}
    raise ValueError(f"unknown operation {op['op']!r}")


def checksum(slots: list[int]) -> str:
    """FNV-1a over slots in order."""
    state = 1469598103934665603
    for slot in slots:
        state = ((state ^ (slot & 0xFFFFFFFF)) * 1099511628211) % (1 << 64)
    return f"{state:016x}"


def list_of(slots: Slots) -> list[int]:
    return [int(slot) for slot in slots]


def server_of(settings: dict[str, Any]) -> Server:
    """The launch of a recorded schedule."""
    chunk = settings["chunked_prefill_size"]
    return Server(
        page_size=settings["page_size"],
        num_tokens=settings["tokens"],
        num_rows=settings["max_running_requests"],
        row_width=settings["context_length"] + ROW_HEADROOM,
        max_running_requests=settings["max_running_requests"],
        context_len=settings["context_length"],
        chunked_prefill_size=chunk if chunk > 0 else None,
        max_prefill_tokens=settings["max_prefill_tokens"],
        prefix_cache=settings["radix_cache"],
        schedule_policy=settings["schedule_policy"],
        conservativeness=settings["schedule_conservativeness"],
        overlap=settings.get("overlap", False),
        sliding=SlidingPool(
            window=settings["sliding_window"], num_tokens=settings["tokens_sliding"]
        )
        if "sliding_window" in settings
        else None,
    )


def schedule_differences(
    record: dict[str, Any], memory_of: Callable[[Server], KvMemory]
) -> list[str]:
    """Where the scheduling model departs from a recorded run: up to the first step that differs."""
    server = server_of(record["server"])
    memory, intake = memory_of(server), Intake(server)
    store = open_store(server, memory)
    scheduler = Scheduler(server, store)
    arrivals = deque(record["requests"])
    batch: list[str] = []
    queue: list[str] | None = None
    for recorded in record["steps"]:
        while arrivals and arrivals[0]["arrival_step"] <= recorded["step"]:
            request = arrivals.popleft()
            max_new = intake.clip(len(request["tokens"]), request["max_new"])
            if max_new != request["clipped_max_new"]:
                return [
                    f"request {request['rid']}: max_new {max_new}, recorded {request['clipped_max_new']}"
                ]
            scheduler.waiting.requests.append(sequence_of(request, max_new, store))
        step = scheduler.step()
        answer, batch = describe_step(step, batch)
        rids = [sequence.rid for sequence in scheduler.waiting.requests]
        if rids != queue:
            answer["queue"] = queue = rids
        answer["after"] = describe_state(scheduler, store)
        fields = {*answer, *recorded} - {"step"}
        differences = [
            f"step {recorded['step']} {field}: {answer.get(field)!r}, recorded {recorded.get(field)!r}"
            for field in sorted(fields)
            if answer.get(field) != recorded.get(field)
            and not (field == "out_cache_loc_checksum" and answer.get(field) is None)
        ]
        if differences:
            return differences
    return []


def sequence_of(request: dict[str, Any], max_new: int, store: KvStore) -> Sequence:
    """A recorded request; what it answers, nobody else asks for."""
    answer = range(-1, -1 - request["output"] - 1, -1)
    unique = [hash((request["rid"], token)) for token in answer]
    key = TokenKey([*request["tokens"], *unique])
    return Sequence(
        request["rid"], key, len(request["tokens"]), max_new, request["output"], store.cache.no_lock
    )


def describe_step(step: Step, previous: list[str]) -> tuple[dict[str, Any], list[str]]:
    """A step in the record's words, and the decode batch that it is told against."""
    answer: dict[str, Any] = {"kind": "idle"}
    if step.batch is not None and step.batch.out_cache_loc is not None:
        answer["out_cache_loc_checksum"] = checksum(list_of(step.batch.out_cache_loc))
    if isinstance(step.batch, Prefill):
        answer["kind"] = "prefill"
        answer["reqs"] = [
            [part.sequence.rid, part.prefix_len, part.stop - part.prefix_len, part.is_middle]
            for part in step.batch.parts
        ]
    elif isinstance(step.batch, Decode):
        rids = [sequence.rid for sequence in step.batch.sequences]
        answer["kind"] = "decode"
        if rids != previous:
            answer["reqs"] = previous = rids
    if step.retracted:
        answer["retracted"] = [sequence.rid for sequence in step.retracted]
    if step.aborted:
        answer["aborted"] = [sequence.rid for sequence in step.aborted]
    return answer, previous


def describe_state(scheduler: Scheduler, store: KvStore) -> dict[str, Any]:
    """Counts after a step, as recorded."""
    state = {
        "running": len(scheduler.running),
        "waiting": len(scheduler.waiting.requests),
        "available": store.memory.available,
        "evictable": store.cache.evictable,
        "protected": store.cache.protected,
        "free_rows": store.memory.free_rows,
        "new_token_ratio": round(scheduler.ratio.current, 9),
    }
    if isinstance(store, SlidingStore):
        state |= {
            "available_full": store.memory.full_available,
            "available_sliding": store.memory.sliding_available,
            "evictable_full": store.cache.evictable,
            "evictable_sliding": store.cache.evictable_sliding,
        }
    return state
