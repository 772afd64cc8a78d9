"""Replays the engine's recorded allocator traces and names each difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kvplan.allocators.backend import Backend
from kvplan.allocators.interleaved import InterleavedAllocator
from kvplan.allocators.paged import PagedAllocator
from kvplan.allocators.ring import RingAllocator
from kvplan.allocators.sliding import SlidingAllocator
from kvplan.allocators.slots import StateSlotAllocator
from kvplan.allocators.sparse import SparseAllocator
from kvplan.allocators.token import TokenAllocator
from kvplan.errors import InputError, PoolError, did_you_mean
from kvplan.pools.rows import RequestRows
from kvplan.pools.storage import open_storage

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Trace = dict[str, Any]
Op = dict[str, Any]


class Place(NamedTuple):
    """Where a trace is replayed, and by which code."""

    device: str
    backend: Backend


FNV_OFFSET = 1469598103934665603
FNV_PRIME = 1099511628211
MASK_64 = (1 << 64) - 1


def replay_trace(
    trace: Trace, *, backend: Backend | str = Backend.REFERENCE, device: str = "cpu"
) -> list[str]:
    """What kvplan's allocator answers otherwise than a recorded trace (golden `allocators`).

    Its own books are held to account after every operation, too: a page that it lost is a
    difference even where the record lacks the same one.
    """
    kind = known(trace["allocator"], BUILD, "allocator")
    pool = BUILD[kind](trace, Place(device, Backend(backend)))
    differences: list[str] = []
    before: Op = AFTER[kind](pool)
    for index, op in enumerate(trace["ops"]):
        apply = APPLY[known(op["op"], APPLY, "operation")]
        try:
            answer = apply(pool, op)
        except PoolError as error:
            return [*differences, f"op {index} ({op['op']}): refused, {error}"]
        after = AFTER[kind](pool)
        recorded = op["after"]
        if index == len(trace["ops"]) - 1 and "swa_available" in after:
            recorded = without_leak(op, before, after, trace["page_size"])
        answer["after"] = {field: value for field, value in after.items() if field in recorded}
        differences += [
            f"op {index} ({op['op']}) {field}: {value!r}, recorded {expected!r}"
            for field, value in answer.items()
            if value != (expected := recorded if field == "after" else op[field])
        ]
        differences += [f"op {index} ({op['op']}): {text}" for text in pool.verify_accounting()]
        before = after
    return differences


def without_leak(op: Op, before: Op, after: Op, page_size: int) -> Op:
    """The recorded counts of a trace's last group end, with what the engine lost put back.

    The recorder drops a sliding decode that the engine refuses and ends the trace there; what
    follows is the end of an open group. SGLang 0.5.23 keeps the full pages of such a decode,
    more of them than the sliding side had left; kvplan takes them back.
    """
    recorded: Op = op["after"]
    leaked = after["full_available"] - recorded["full_available"]
    if (
        op["op"] != "free_group_end"
        or leaked % page_size
        or not before["swa_available"] < leaked <= before["full_available"]
        or recorded["available"] != min(recorded["full_available"], recorded["swa_available"])
    ):
        return recorded
    full_available = recorded["full_available"] + leaked
    available = min(full_available, recorded["swa_available"])
    return recorded | {"full_available": full_available, "available": available}


def known(name: str, table: dict[str, Any], noun: str) -> str:
    """A name that a table has; any other is refused."""
    if name not in table:
        raise InputError(f"unknown {noun} '{name}' in a trace", hint=did_you_mean(name, table))
    return name


def checksum(ids: list[int]) -> str:
    """FNV-1a over an id list, in order; -1 counts as 2^32 - 1."""
    state = FNV_OFFSET
    for number in ids:
        state = ((state ^ (number & 0xFFFFFFFF)) * FNV_PRIME) & MASK_64
    return f"{state:016x}"


def ids(numbers: list[int], device: torch.device | None = None) -> Tensor:
    import torch

    return torch.tensor(numbers, dtype=torch.int64, device=device)


def out(slots: Tensor | None) -> Op:
    return {"out": None if slots is None else slots.tolist()}


def done(_: None) -> Op:
    return {}


def extend(pool: Any, op: Op, method: str = "alloc_extend", **more: Any) -> Op:
    vectors = [ids(op[name], pool.device) for name in ("prefix_lens", "seq_lens", "last_loc")]
    on_host = {f"{name}_cpu": ids(op[name]) for name in ("prefix_lens", "seq_lens")}
    return out(getattr(pool, method)(*vectors, **on_host, **more))


def decode(pool: Any, op: Op) -> Op:
    seq_lens, last_loc = ids(op["seq_lens"], pool.device), ids(op["last_loc"], pool.device)
    return out(pool.alloc_decode(seq_lens, last_loc, seq_lens_cpu=ids(op["seq_lens"])))


def extend_interleaved(pool: InterleavedAllocator, op: Op) -> Op:
    bases = list(op["rotation_bases"])
    answer = extend(pool, op, rotation_bases=bases)
    return answer | {"resolved_bases": None if answer["out"] is None else bases}


def build_swa(trace: Trace, place: Place) -> SlidingAllocator | RingAllocator:
    size, page_size, options = trace["size"], trace["page_size"], paged_options(trace, place)
    if trace.get("ring_size") is None:
        return SlidingAllocator(size, trace["size_swa"], page_size, **options)
    rows = RequestRows(trace["rows"], 1, storage=open_storage("cpu"))
    return RingAllocator(size, page_size, ring_size=trace["ring_size"], rows=rows, **options)


def paged_options(trace: Trace, place: Place) -> dict[str, Any]:
    return {"need_sort": trace["need_sort"], "device": place.device, "backend": place.backend}


BUILD: dict[str, Callable[[Trace, Place], Any]] = {
    "token": lambda trace, place: TokenAllocator(
        trace["size"], need_sort=trace["need_sort"], device=place.device
    ),
    "paged": lambda trace, place: PagedAllocator(
        trace["size"], trace["page_size"], **paged_options(trace, place)
    ),
    "swa": build_swa,
    "swa_extra": build_swa,
    "rows": lambda trace, place: RequestRows(trace["size"], 1, storage=open_storage(place.device)),
    "slots": lambda trace, place: StateSlotAllocator(trace["size"], device=place.device),
    "interleave": lambda trace, place: InterleavedAllocator(
        trace["size"],
        trace["page_size"],
        shard_size=trace["shard_size"],
        need_sort=trace["need_sort"],
        device=place.device,
    ),
    "hisparse": lambda trace, place: SparseAllocator(
        trace["size"],
        trace["page_size"],
        host_to_device_ratio=trace["host_to_device_ratio"],
        **paged_options(trace, place),
    ),
}

APPLY: dict[str, Callable[[Any, Op], Op]] = {
    "alloc": lambda pool, op: out(pool.alloc(op["need_size"])),
    "alloc_extend": lambda pool, op: (
        extend_interleaved(pool, op) if "rotation_bases" in op else extend(pool, op)
    ),
    "alloc_extend_swa_tail": lambda pool, op: extend(
        pool, op, "alloc_extend_swa_tail", swa_tail_len=op["swa_tail_len"]
    ),
    "alloc_logical_only": lambda pool, op: extend(pool, op, "alloc_logical_only"),
    "alloc_decode": decode,
    "alloc_rows": lambda pool, op: {"out": pool.alloc_rows(op["need_size"])},
    "free": lambda pool, op: done(pool.free(ids(op["index"], pool.device))),
    "free_segment": lambda pool, op: done(
        pool.free_segment(ids(op["index"], pool.device), start_pos=op["start_pos"])
    ),
    "free_swa": lambda pool, op: done(pool.free_swa(ids(op["index"], pool.device))),
    "free_rows": lambda pool, op: done(pool.free_rows(op["index"])),
    "free_group_begin": lambda pool, _: done(pool.free_group_begin()),
    "free_group_end": lambda pool, _: done(pool.free_group_end()),
    "clear": lambda pool, _: done(pool.clear()),
}


def after_paged(pool: PagedAllocator) -> Op:
    return {
        "available": pool.available_size(),
        "free_checksum": checksum(pool.free_pages().tolist()),
    }


def after_swa(pool: SlidingAllocator | RingAllocator) -> Op:
    after: Op = {
        "available": pool.available_size(),
        "full_available": pool.full_available_size(),
        "swa_available": pool.swa_available_size(),
        "size_swa": pool.size_swa,
    }
    if isinstance(pool, SlidingAllocator):
        after["mapping_checksum"] = checksum(pool.full_to_swa.tolist())
    return after


def after_rows(pool: RequestRows) -> Op:
    return {
        "available": pool.available_size(),
        "free_rows": list(pool.free_list),
        "generation": pool.req_generation.tolist(),
    }


def after_slots(pool: StateSlotAllocator) -> Op:
    return {
        "available": pool.available_size(),
        "free_checksum": checksum(pool.free_slots().tolist()),
    }


def after_interleave(pool: InterleavedAllocator) -> Op:
    return {
        "available": pool.available_size(),
        "class_counts": pool.class_counts(),
        "free_checksum": checksum(pool.free_pages().tolist()),
    }


def after_hisparse(pool: SparseAllocator) -> Op:
    return {
        "available": pool.available_size(),
        "logical_available": pool.logical_available_size(),
        "device_available": pool.device_available_size(),
        "mapping_checksum": checksum(pool.logical_to_device.tolist()),
    }


AFTER: dict[str, Callable[[Any], Op]] = {
    "token": after_paged,
    "paged": after_paged,
    "swa": after_swa,
    "swa_extra": after_swa,
    "rows": after_rows,
    "slots": after_slots,
    "interleave": after_interleave,
    "hisparse": after_hisparse,
}
