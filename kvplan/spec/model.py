"""What sizing needs to know of a model, whatever its config.json called it."""

from typing import Literal

import msgspec

from kvplan.spec.checks import check_model
from kvplan.spec.numbers import Count, LayerCount, LayerIds, NumBytes, Whole
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

    num_kv_heads: Count
    head_dim: Count
    v_head_dim: Whole


class Mla(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    tag="mla",
    forbid_unknown_fields=True,
):
    """Multi-head latent attention: one latent of kv_lora_rank + qk_rope_head_dim a token."""

    kv_lora_rank: Count
    qk_rope_head_dim: Whole


class Indexer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """DSA index keys; layers that share another layer's top-k own none."""

    head_dim: Count
    kpool: Count = 1
    shared_topk_layers: LayerIds = ()


class Sliding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sliding side of a model that the engine serves with two pools."""

    window: Count  # as the engine uses it (inclusive windows are already one less)
    layers: LayerIds  # ids of the layers that slide; the others are full
    num_kv_heads: Count
    head_dim: Count
    v_head_dim: Whole


class Compressed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """DeepSeek-V4 compressed attention: a ratio a layer, and a window for all of them."""

    ratios: tuple[Whole, ...]
    window: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: Count
    index_head_dim: Count


class Sparse(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """MiniMax sparse attention: a single-head index of the sparse layers beside K and V."""

    dense_layers: LayerIds
    sparse_layers: LayerIds
    index_head_dim: Count
    index_k_only_layers: LayerIds = ()


class Vision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The vision tower's size, which lowers the default mem_fraction_static."""

    num_layers: Whole
    hidden_size: Whole


class Weights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of the checkpoint's bytes; the parts are those that do not shard with the rest."""

    num_params: NumBytes | None = None
    total_bytes: NumBytes | None = None  # of all parts as they are served, MTP layers included
    low_bytes: NumBytes | None = None  # the range of total_bytes where it is an estimate
    high_bytes: NumBytes | None = None
    embedding_bytes: NumBytes = 0
    head_bytes: NumBytes = 0  # 0 where the embedding is the head
    attention_bytes: NumBytes = 0  # shard over the attention ranks alone
    replicated_bytes: NumBytes = 0  # every rank keeps them whole
    mtp_bytes: NumBytes = 0  # loaded by a draft worker alone

    @property
    def estimated(self) -> bool:
        """Whether total_bytes comes from a formula instead of a published figure."""
        return self.low_bytes is not None


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model, frozen. Layer ids count from 0 over all hidden layers."""

    name: str
    architecture: str  # the class in config.json's `architectures`
    hf_id: str | None = None
    aliases: tuple[str, ...] = ()  # other HF ids with the same figures
    source: str | None = None
    confidence: Confidence = "own-config"

    dtype: ModelDtype
    context_length: Count
    num_layers: LayerCount
    kv_layers_per_layer: LayerCount = 1  # allocated: 2 for LongCat, the loops of loop models
    hidden_size: Count
    num_attention_heads: Count

    attention: Mha | Mla
    indexer: Indexer | None = None
    sliding: Sliding | None = None
    linear: LinearState | None = None
    compressed: Compressed | None = None
    sparse: Sparse | None = None

    # num_nextn_predict_layers; None where the config names no count
    mtp_layers: Whole | None = None
    # MTP layers with the sliding geometry at the full pool's length (Inkling)
    mtp_sliding_layers: Whole | None = None
    # of the checkpoint, by the engine's name: fp8, modelopt_fp4, mxfp4, ...
    quantization: str | None = None
    # of the checkpoint's own KV scales, for `auto`
    kv_cache_dtype: Literal["fp8_e4m3"] | None = None
    # learned sinks, which flashinfer does not know
    attention_sinks: bool = False
    # of a DFLASH or DSpark draft, or of the one bundled in a target
    block_size: Count | None = None
    multimodal: bool = False  # served as multimodal: reserves the embedding cache
    vision: Vision | None = None
    weights: Weights | None = None

    def __post_init__(self) -> None:
        check_model(self)
