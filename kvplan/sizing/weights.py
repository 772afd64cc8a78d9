"""Weight bytes on one rank: what a checkpoint weighs, split as the engine splits it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kvplan.errors import InputError
from kvplan.sizing.resolved import ParallelWidths
from kvplan.sizing.shapes import stage_range
from kvplan.spec.model import ModelSpec, Weights

INDEX_FILES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
MOST_BYTES = 1 << 60
PUBLISHED_SPREAD = 0.01  # padding, repacked layouts and buffers beside the checkpoint's tensors


class RankWeights(msgspec.Struct, frozen=True):
    """Bytes of the weights on one rank, with their range and where the figure comes from."""

    num_bytes: int
    low_bytes: int
    high_bytes: int
    estimated: bool
    origin: str


def rank_weights(model: ModelSpec, widths: ParallelWidths, pp_rank: int = 0) -> RankWeights | None:
    """The target's bytes on one rank; None for a model of which no weights are known."""
    weights = model.weights
    if weights is None or weights.total_bytes is None:
        return None
    low, high = total_range(weights, weights.total_bytes)

    def share(total: int) -> int:
        return stage_bytes(weights, total, model.num_layers, widths, pp_rank)

    return RankWeights(
        num_bytes=share(weights.total_bytes),
        low_bytes=share(low),
        high_bytes=share(high),
        estimated=weights.estimated,
        origin=origin(weights),
    )


def draft_rank_weights(
    target: ModelSpec, draft: ModelSpec | None, widths: ParallelWidths
) -> RankWeights | None:
    """The draft's bytes on one rank: its own checkpoint, or the target's MTP layers.

    Embedding and head are the target's; at the high end the draft loads them before it shares.
    """
    weights = draft.weights if draft else target.weights
    if weights is None:
        return None
    total = weights.total_bytes if draft else weights.mtp_bytes
    if not total:
        return None
    ends = weights.embedding_bytes + weights.head_bytes
    own = max(0, total - weights.embedding_bytes) if draft else total
    whole = weights.total_bytes or total
    spread = weights.high_bytes / whole - 1 if weights.high_bytes else PUBLISHED_SPREAD
    return RankWeights(
        num_bytes=own // widths.tp,
        low_bytes=int(own * (1 - abs(spread))) // widths.tp,
        high_bytes=int((own + ends) * (1 + abs(spread))) // widths.tp,
        estimated=True,
        origin=f"{'draft' if draft else 'MTP layers'}: {origin(weights)}",
    )


def total_range(weights: Weights, total: int) -> tuple[int, int]:
    """The range of a published or an estimated total."""
    if weights.low_bytes is not None and weights.high_bytes is not None:
        return min(total, weights.low_bytes), max(total, weights.high_bytes)
    return int(total * (1 - PUBLISHED_SPREAD)), int(total * (1 + PUBLISHED_SPREAD))


def stage_bytes(
    weights: Weights, total: int, num_layers: int, widths: ParallelWidths, pp_rank: int
) -> int:
    """One stage's share: layers alike, the embedding first, the head last.

    Attention shards over the attention ranks, so DP attention keeps more of it on each rank;
    embedding and head shard likewise; what replicates is whole on every rank; MTP layers are
    the draft worker's.
    """
    ends = weights.embedding_bytes + weights.head_bytes
    layers = total - ends - weights.mtp_bytes - weights.attention_bytes - weights.replicated_bytes
    rank_layers = (
        max(0, layers) / widths.tp
        + weights.attention_bytes / max(1, widths.attn_tp)
        + weights.replicated_bytes
    )
    span = stage_range(num_layers, pp_rank, widths.pp, widths.pp_partition)
    share = rank_layers * len(span) / num_layers
    return int(share + end_bytes(weights, widths, pp_rank))


def end_bytes(weights: Weights, widths: ParallelWidths, pp_rank: int) -> float:
    """Embedding and head of one stage; a tied head is a second copy on the last stage."""
    first, last = pp_rank == 0, pp_rank == widths.pp - 1
    head = weights.head_bytes or (weights.embedding_bytes if widths.pp > 1 else 0)
    whole = (weights.embedding_bytes if first else 0) + (head if last else 0)
    return whole / max(1, widths.attn_tp)


def origin(weights: Weights) -> str:
    """Words for where the total comes from."""
    if weights.estimated:
        return "estimated from the config and its quantisation"
    return "the checkpoint's published size"


def checkpoint_bytes(folder: Path, *, at_least: int = 1) -> int | None:
    """total_size of a checkpoint's index, or the size of its weight files; None without weights.

    Files of less than `at_least` bytes together are no weights.
    """
    for name in INDEX_FILES:
        file = folder / name
        if file.is_file():
            return index_total(file)
    total = sum(file.stat().st_size for file in weight_files(folder))
    return total if total >= max(1, at_least) else None


def weight_files(folder: Path) -> list[Path]:
    """Files that hold weights: sharded ones where there are any, beside which others are copies."""
    files = [file for file in sorted(folder.glob("*.safetensors")) if file.is_file()]
    return [file for file in files if file.name.startswith("model")] or files


def index_total(file: Path) -> int:
    """metadata.total_size of a safetensors index."""
    from kvplan.yamlfile import load_json

    document = load_json(file)
    metadata = document.data.get("metadata") if isinstance(document.data, dict) else None
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, float) and total.is_integer():
        total = int(total)
    if isinstance(total, bool) or not isinstance(total, int) or not 0 < total <= MOST_BYTES:
        raise InputError(
            "'metadata.total_size' is missing or no byte count",
            where=document.where(("metadata", "total_size")),
        )
    return total
