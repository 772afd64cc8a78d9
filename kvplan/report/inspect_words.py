"""What `kvplan inspect` found, in one line, and whether it is as it should be."""

from __future__ import annotations

from typing import Any

from kvplan.units import GIB, MIB
from kvplan.words import printable


def is_sound(report: dict[str, Any]) -> bool:
    """Whether nothing is lost, the sums are the ledger's, and what was built is as planned."""
    lost = report["occupancy"] is not None and report["occupancy"]["lost_pages"]
    built = all(each["as_planned"] for each in report["allocation"] or ())
    summed = all(each["total_bytes"] == each["ledger_bytes"] for each in report["layout"] or ())
    return built and summed and not lost


def verdict(report: dict[str, Any]) -> str:
    """What was asked for, in one line."""
    parts = (
        ("address", address_words),
        ("allocation", allocation_words),
        ("occupancy", occupancy_words),
        ("layout", layout_words),
    )
    text = next(words(report[name]) for name, words in parts if report[name] is not None)
    return f"{lost_words(report['occupancy'])}{text}"


def lost_words(occupancy: dict[str, Any] | None) -> str:
    """Pages that nobody holds and no free list has, where there are any."""
    lost = occupancy["lost_pages"] if occupancy is not None else 0
    return f"{lost:,} pages are lost, nobody's and not free · " if lost else ""


def address_words(address: dict[str, Any]) -> str:
    words = [f"slot {address['slot']:,}", f"page {address['page']:,} + {address['page_offset']}"]
    if address["sliding_slot"] is not None:
        words.append(f"sliding slot {address['sliding_slot']:,}")
    if address["left_window"]:
        words.append("no sliding slot, the window has left it")
    if address["class"] is not None:
        words.append(address["class"])
    if address["rid"] is not None:
        row = f"row {address['row']:,}, position {address['position']:,}"
        words = [f"'{printable(address['rid'])}'", row, *words]
    return " · ".join(words)


def allocation_words(stages: list[dict[str, Any]]) -> str:
    built = sum(each["built_bytes"] for each in stages)
    wrong = sum(bool(tensor["difference"]) for each in stages for tensor in each["tensors"])
    scale = ", one small layer of each kind" if stages[0]["kv_scale"] else ""
    where = f"{size_words(built)} on {stages[0]['device']}{scale}"
    if wrong:
        return f"not as planned: {wrong} kinds of tensors differ, {where}"
    if not all(each["as_planned"] for each in stages):
        return f"not as planned: the CUDA allocator was asked for other bytes, {where}"
    return f"as planned: every tensor of {where}"


def occupancy_words(occupancy: dict[str, Any]) -> str:
    pools = []
    for pool in occupancy["pools"]:
        pages, unit = pool["pages"], "slots" if pool["name"] == "state" else "pages"
        held = pages["used"] + pages["shared"] + pages["cached"]
        pools.append(f"{pool['name']} {held:,} of {pages['total']:,} {unit} held")
    return " · ".join(pools)


def layout_words(stages: list[dict[str, Any]]) -> str:
    tensors = sum(each["num_tensors"] for each in stages)
    total = sum(each["total_bytes"] for each in stages)
    agree = all(each["total_bytes"] == each["ledger_bytes"] for each in stages)
    beside = "as in the ledger" if agree else "which are not the ledger's bytes"
    where = "of one rank" if len(stages) == 1 else f"over {len(stages)} stages"
    return f"{tensors:,} tensors {where}, {size_words(total)}, {beside}"


def size_words(num_bytes: int) -> str:
    """Bytes as GiB, or as MiB below a tenth of one."""
    if num_bytes < GIB // 10:
        return f"{num_bytes / MIB:.2f} MiB"
    return f"{num_bytes / GIB:.2f} GiB"
