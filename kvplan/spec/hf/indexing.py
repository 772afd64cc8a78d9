"""Index keys beside the cache: DSA, MiniMax sparse attention, DeepSeek-V4's compression."""

from __future__ import annotations

from kvplan.spec.hf.config import Config
from kvplan.spec.model import Compressed, Indexer, Sparse


def dsa_indexer(config: Config) -> Indexer | None:
    """The DSA indexer, or None for checkpoints of the same class without one."""
    if not config.has("index_topk"):
        return None
    layers = config.layers()
    return Indexer(
        head_dim=config.count("index_head_dim"),
        kpool=config.whole("index_kpool") or 1,
        shared_topk_layers=tuple(
            layer for layer in range(layers) if shares_topk(config, layer, layers)
        ),
    )


def no_indexer(config: Config) -> Indexer | None:
    """LongCat: two attentions share a layer, and whose index keys they keep is not modelled."""
    if config.has("index_topk"):
        raise config.refuse("index_topk", "is not modelled for this class")
    return None


def hy_v4_indexer(config: Config) -> Indexer | None:
    """HY-4: one indexer in four where the config lists no types."""
    found = dsa_indexer(config)
    if found is None or config.has("indexer_types"):
        return found
    shared = tuple(layer for layer in range(1, config.layers()) if (layer - 1) % 4)
    return Indexer(head_dim=found.head_dim, kpool=found.kpool, shared_topk_layers=shared)


def shares_topk(config: Config, layer: int, layers: int) -> bool:
    """Whether a layer reuses an earlier layer's top-k and so owns no index keys."""
    types = config.names("indexer_types")
    if types is not None:
        return layer < min(len(types), layers) and types[layer] == "shared"
    every = config.whole("cli_factor") or 1
    if every > 1:
        return layer % every != 0
    pattern = config.text("index_topk_pattern")
    if pattern is not None:
        return layer < len(pattern) and pattern[layer] == "S"
    period = config.whole("index_topk_freq") or 1
    offset = config.whole("index_skip_topk_offset")
    return max(layer - (2 if offset is None else offset) + 1, 0) % period != 0


def minimax_sparse(config: Config) -> Sparse | None:
    """MiniMax-M3: which layers are sparse, and which of them keep index keys alone."""
    sparse = config.inner("sparse_attention_config")
    if sparse is None:
        raise config.refuse("sparse_attention_config", "is missing")
    every = sparse.numbers("sparse_attention_freq") or ()
    layers = config.layers()
    if len(every) != layers:
        raise sparse.refuse(
            "sparse_attention_freq", f"has {len(every)} entries for {layers} layers"
        )
    k_only = sparse.numbers("sparse_disable_index_value") or ()
    return Sparse(
        dense_layers=tuple(layer for layer, flag in enumerate(every) if flag == 0),
        sparse_layers=tuple(layer for layer, flag in enumerate(every) if flag != 0),
        index_head_dim=sparse.count("sparse_index_dim"),
        index_k_only_layers=tuple(layer for layer, flag in enumerate(k_only) if flag != 0),
    )


def deepseek_v4(config: Config) -> Compressed | None:
    """DeepSeek-V4: a compression ratio a layer; entries past the last layer are MTP layers."""
    if config.text("model_type") == "deepseek_v41":
        raise config.refuse(
            "model_type", "deepseek_v41 is not modelled: its layers share compressed storage"
        )
    layers, ratios = config.layers(), config.numbers("compress_ratios") or ()
    if len(ratios) < layers:
        raise config.refuse("compress_ratios", f"has {len(ratios)} entries for {layers} layers")
    rope = config.count("qk_rope_head_dim")
    head_dim = config.count("head_dim")
    if head_dim <= rope:
        raise config.refuse("head_dim", f"must be above 'qk_rope_head_dim' {rope}, got {head_dim}")
    return Compressed(
        ratios=ratios[:layers],
        window=config.count("sliding_window"),
        qk_nope_head_dim=head_dim - rope,
        qk_rope_head_dim=rope,
        index_head_dim=config.count("index_head_dim"),
    )
