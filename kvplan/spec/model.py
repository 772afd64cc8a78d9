"""What sizing needs to know of a model, whatever its config.json called it."""

from __future__ import annotations

from typing import Literal

import msgspec

from kvplan.spec.state import LinearState

ModelDtype = Literal["bfloat16", "float16", "float32"]
Confidence = Literal["exact-config", "class-default", "secondary", "own-config"]


class Mha(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    tag="mha",
    forbid_unknown_fields=True,
):
    """Multi-head or grouped-query attention: K and V of every KV head."""

    num_kv_heads: int
    head_dim: int
    v_head_dim: int


class Mla(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    tag="mla",
    forbid_unknown_fields=True,
):
    """Multi-head latent attention: one latent of kv_lora_rank + qk_rope_head_dim a token."""

    kv_lora_rank: int
    qk_rope_head_dim: int


class Indexer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """DSA index keys; layers that share another layer's top-k own none."""

    head_dim: int
    kpool: int = 1
    shared_topk_layers: tuple[int, ...] = ()


class Sliding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sliding side of a model that the engine serves with two pools."""

    window: int  # as the engine uses it (inclusive windows are already one less)
    layers: tuple[int, ...]  # ids of the layers that slide; the others are full
    num_kv_heads: int
    head_dim: int
    v_head_dim: int
    latent: Mla | None = None  # sliding layers that keep a latent of their own (dots3)


class Compressed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """DeepSeek-V4 compressed attention: a ratio a layer, and a window for all of them."""

    ratios: tuple[int, ...]
    window: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    index_head_dim: int


class Sparse(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """MiniMax sparse attention: a single-head index of the sparse layers beside K and V."""

    dense_layers: tuple[int, ...]
    sparse_layers: tuple[int, ...]
    index_head_dim: int
    index_k_only_layers: tuple[int, ...] = ()


class Vision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The vision tower's size, which lowers the default mem_fraction_static."""

    num_layers: int
    hidden_size: int


class Weights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of the checkpoint's bytes."""

    num_params: int | None = None
    total_bytes: int | None = None  # of the published checkpoint, where known


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model, frozen. Layer ids count from 0 over all hidden layers."""

    name: str
    architecture: str  # the class in config.json's `architectures`
    hf_id: str | None = None
    source: str | None = None
    confidence: Confidence = "own-config"

    dtype: ModelDtype
    context_length: int
    num_layers: int
    kv_layers_per_layer: int = 1  # 2 for LongCat; the loop count of loop models
    hidden_size: int
    num_attention_heads: int

    attention: Mha | Mla
    indexer: Indexer | None = None
    sliding: Sliding | None = None
    linear: LinearState | None = None
    compressed: Compressed | None = None
    sparse: Sparse | None = None

    # num_nextn_predict_layers; None where the config names no count
    mtp_layers: int | None = None
    # MTP layers with the sliding geometry at the full pool's length (Inkling)
    mtp_sliding_layers: int | None = None
    # of the checkpoint, by the engine's name: fp8, modelopt_fp4, mxfp4, ...
    quantization: str | None = None
    # of the checkpoint's own KV scales, for `auto`
    kv_cache_dtype: Literal["fp8_e4m3"] | None = None
    # learned sinks, which flashinfer does not know
    attention_sinks: bool = False
    # of a DFLASH or DSpark draft, or of the one bundled in a target
    block_size: int | None = None
    multimodal: bool = False  # served as multimodal: reserves the embedding cache
    vision: Vision | None = None
    weights: Weights | None = None
