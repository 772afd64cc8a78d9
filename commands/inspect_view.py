"""`kvplan inspect` as text: the verdict, then the layout, a token's bytes, or the map of a state."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from kvplan.sizing.pool_layout import spans
from kvplan.words import printable

from .render import gib, table
from .state_view import show_occupancy

LONGEST_LAYERS = 24  # characters of a list of layers


def show_inspect(report: dict[str, Any], out: Any) -> None:
    """Print one report to a rich console: what was asked for most closely."""
    sound = report["verdict"]["sound"]
    out.print(report["verdict"]["text"], style="bold green" if sound else "bold red")
    shows = (
        ("address", show_address),
        ("allocation", show_allocation),
        ("occupancy", show_occupancy),
        ("layout", show_layout),
    )
    for part, show in shows:
        if report.get(part) is not None:
            out.print()
            show(report[part], out)
            break
    for warning in report["warnings"]:
        out.print(f"  warning: {warning}", style="yellow")


def show_layout(stages: list[dict[str, Any]], out: Any) -> None:
    """Every tensor, then each use of the card beside the ledger's figure."""
    for stage in stages:
        show_stage(stage, len(stages), out)
        rows = [tensor_row(tensor) for tensor in stage["tensors"]]
        headers = ("  tensor", "bytes", "dtype", "shape, strides and layers of each")
        out.print(table(headers, rows, right=(1,)))
        out.print()
        sums = [
            (f"  {each['name']}", gib(each["bytes"]), difference(each)) for each in stage["totals"]
        ]
        sums.append(("  all of them", gib(stage["total_bytes"]), f"{stage['total_bytes']:,} B"))
        out.print(table(("  use", "size", "against the ledger"), sums, right=(1,)))


def show_stage(stage: dict[str, Any], num_stages: int, out: Any) -> None:
    """A heading where there are several stages."""
    if num_stages > 1:
        first, end = stage["layers"]
        out.print(f"stage {stage['pp_rank']}, layers {first}–{end - 1}", style="bold")


def tensor_row(tensor: dict[str, Any]) -> tuple[str, ...]:
    copies = f"{tensor['copies']} × " if tensor["copies"] > 1 else ""
    words = f"{copies}{numbers(tensor['shape'])}, strides {numbers(tensor['stride'])}"
    if tensor["layers"]:
        words += f", layers {layers_words(tensor['layers'])}"
    return (
        f"  {tensor['pool']}.{tensor['name']}",
        "view" if tensor["is_view"] else f"{tensor['bytes']:,}",
        tensor["dtype"],
        words,
    )


def difference(total: dict[str, Any]) -> str:
    """Nothing where the ledger says the same."""
    over = total["bytes"] - total["ledger_bytes"]
    return f"{over:+,} B" if over else "the same"


def show_address(address: dict[str, Any], out: Any) -> None:
    """Who holds the slot, then its bytes in every buffer, layers with the same ones together."""
    holders = address["holders"] or []
    for holder in holders if len(holders) > 1 else ():
        rid, position = printable(holder["rid"]), holder["position"]
        out.print(f"  in row {holder['row']:,} of '{rid}' at position {position:,}")
    if address["dcp_rank"] or address["dcp_slot"] != address["slot"]:
        out.print(f"  on rank {address['dcp_rank']}: its slot {address['dcp_slot']:,}")
    for stage in address["stages"]:
        show_stage(stage, len(address["stages"]), out)
        headers = ("  bytes of", "layers", "offset", "length")
        out.print(table(headers, address_rows(stage["places"]), right=(2,)))


def address_rows(places: Iterable[dict[str, Any]]) -> list[tuple[str, ...]]:
    """One row for places that differ in their layer alone, or by one stride a layer."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for place in places:
        what = f"  {place['pool']}.{place['buffer']}"
        if place["what"] != place["buffer"]:
            what += f": {place['what']}"
        groups.setdefault((what, length_words(place)), []).append(place)
    return [
        (what, layers_words(layers), offset, length)
        for (what, length), group in groups.items()
        for layers, offset in offset_rows(group)
    ]


def offset_rows(group: list[dict[str, Any]]) -> list[tuple[list[int], str]]:
    """Layers and their offset; several rows where the offsets follow no rule."""
    offsets = [place["offset_bytes"] for place in group]
    layers = [place["layer"] for place in group if place["layer"] is not None]
    steps = {after - before for before, after in pairwise(offsets)}
    if len(steps) > 1:
        return [([place["layer"]], f"{place['offset_bytes']:,}") for place in group]
    step = steps.pop() if steps else 0
    return [(layers, f"{offsets[0]:,}" + (f", then +{step:,}" if step else ""))]


def length_words(place: dict[str, Any]) -> str:
    """`2,048 B`, or `8 × 4 B, 512 B apart` for pieces."""
    words = f"{place['length_bytes']:,} B"
    for repeat in reversed(place["repeats"]):
        words = f"{repeat['count']} × {words}, {repeat['stride_bytes']:,} B apart"
    return words


def show_allocation(stages: list[dict[str, Any]], out: Any) -> None:
    """Planned and built bytes of every kind of tensor, and what CUDA's allocator counts."""
    for stage in stages:
        show_stage(stage, len(stages), out)
        rows = [
            (
                f"  {each['pool']}.{each['name']}",
                f"{each['planned_bytes']:,}",
                f"{each['built_bytes']:,}",
                each["difference"] or "as planned",
            )
            for each in stage["tensors"]
        ]
        rows.append(("  all", f"{stage['planned_bytes']:,}", f"{stage['built_bytes']:,}", ""))
        out.print(table(("  tensor", "planned B", "built B", ""), rows, right=(1, 2)))
        if stage["cuda"] is not None:
            cuda = stage["cuda"]
            out.print(
                f"  CUDA: {cuda['planned']:,} B of tensors, {cuda['requested']:,} B asked for,"
                f" {cuda['allocated']:,} B handed out, {cuda['reserved']:,} B from the driver"
            )


def layers_words(layers: list[int]) -> str:
    """Layers as spans, cut where there are many."""
    words = spans(layers)
    if len(words) <= LONGEST_LAYERS:
        return words
    kept = words[: LONGEST_LAYERS - 7].rpartition(",")[0]
    return f"{kept}, … ({len(layers)})"


def numbers(values: Iterable[int]) -> str:
    """Extents in brackets."""
    return f"({', '.join(map(str, values))})"
