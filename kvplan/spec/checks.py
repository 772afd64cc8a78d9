"""What must hold between the fields of a model, wherever it was read from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvplan.spec.model import ModelSpec

RATIOS = frozenset({0, 1, 2, 4, 128})


def check_model(model: ModelSpec) -> None:
    """ValueError for layer ids that the model does not have and parts that exclude each other."""
    for name, ids in layer_lists(model):
        if any(layer >= model.num_layers for layer in ids):
            raise ValueError(f"'{name}' names layer {max(ids)} of {model.num_layers} layers")
        if len(set(ids)) != len(ids):
            raise ValueError(f"'{name}' names a layer twice")
    if model.compressed is not None:
        check_ratios(model.compressed.ratios, model.num_layers)
    latent = hasattr(model.attention, "kv_lora_rank")
    if model.indexer is not None and not latent:
        raise ValueError("'indexer' needs attention of kind mla")
    if model.sparse is not None and latent:
        raise ValueError("'sparse' needs attention of kind mha")
    if model.sliding is not None and latent:
        raise ValueError("'sliding' needs attention of kind mha")
    if model.sliding is not None and model.compressed is not None:
        raise ValueError("'sliding' and 'compressed' exclude each other")


def check_ratios(ratios: tuple[int, ...], num_layers: int) -> None:
    """A known ratio for every layer."""
    if len(ratios) != num_layers:
        raise ValueError(f"'compressed.ratios' has {len(ratios)} entries for {num_layers} layers")
    unknown = set(ratios) - RATIOS
    if unknown:
        raise ValueError(f"'compressed.ratios' has {min(unknown)}: known are 0, 1, 2, 4, 128")


def layer_lists(model: ModelSpec) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every list of layer ids of a model, with the name of its field."""
    if model.indexer is not None:
        yield "indexer.shared_topk_layers", model.indexer.shared_topk_layers
    if model.sliding is not None:
        yield "sliding.layers", model.sliding.layers
    if model.linear is not None:
        yield "linear.layers", model.linear.layers
        yield "linear.full_attention_layers", model.linear.full_attention_layers
    if model.sparse is not None:
        yield "sparse.dense_layers", model.sparse.dense_layers
        yield "sparse.sparse_layers", model.sparse.sparse_layers
        yield "sparse.index_k_only_layers", model.sparse.index_k_only_layers
