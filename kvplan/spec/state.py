"""Recurrent state of hybrid linear models: what one slot holds in each linear layer."""

from typing import Literal

import msgspec

from kvplan.spec.numbers import Count, LayerIds, Whole

StateDtype = Literal["float32", "bfloat16", "float16"]


class Mamba2State(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    tag="mamba2",
    forbid_unknown_fields=True,
):
    """Mamba2 and gated delta net: a conv window over heads and groups, a state a head."""

    intermediate_size: Count
    num_groups: Whole
    num_heads: Count
    head_dim: Count
    state_size: Count
    conv_kernel: Count


class KdaState(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    tag="kda",
    forbid_unknown_fields=True,
):
    """Kimi delta attention: the conv window's axes are swapped, temporal is square."""

    num_heads: Count
    head_dim: Count
    num_k_heads: Count
    head_k_dim: Count
    conv_kernel: Count


class LightningState(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    tag="lightning",
    forbid_unknown_fields=True,
):
    """Lightning attention: no conv, a square state a head."""

    num_heads: Count
    head_dim: Count


class ShortConvState(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    tag="short_conv",
    forbid_unknown_fields=True,
):
    """LFM2 short convolution: the conv window alone."""

    conv_dim: Count
    conv_kernel: Count


class CcaState(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    tag="cca",
    forbid_unknown_fields=True,
):
    """ZAYA compressed convolutional attention: Q and K padding, and the last hidden state."""

    channels: Count
    padding: Whole
    hidden_size: Count


class StreamConvState(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    tag="stream_conv",
    forbid_unknown_fields=True,
):
    """Inkling: conv windows over K and V of both layer kinds and over both outputs."""

    num_kv_heads: Count
    head_dim: Count
    sliding_kv_heads: Count
    sliding_head_dim: Count
    hidden_size: Count
    conv_kernel: Count


StateKind = Mamba2State | KdaState | LightningState | ShortConvState | CcaState | StreamConvState


class LinearState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The linear layers of a hybrid model and their state."""

    layers: LayerIds
    full_attention_layers: LayerIds
    state: StateKind
    ssm_dtype: StateDtype = "float32"
    conv_dtype: StateDtype = "bfloat16"
