"""Hybrids whose state is a convolution's window: LFM2, ZAYA, Inkling."""

from __future__ import annotations

from kvplan.spec.hf.config import Config
from kvplan.spec.hf.linear import split, state_dtype
from kvplan.spec.state import CcaState, LinearState, ShortConvState, StreamConvState


def short_conv(config: Config) -> LinearState | None:
    """LFM2: convolutions by `layer_types`, or all layers that are not listed as full."""
    layers = config.layers()
    kinds = config.names("layer_types")
    if kinds is None:
        full = config.numbers("full_attn_idxs")
        if full is None:
            return None
        kinds = tuple("full_attention" if index in full else "conv" for index in range(layers))
    state = ShortConvState(
        conv_dim=config.count("hidden_size"), conv_kernel=config.count("conv_L_cache")
    )
    return split(
        state,
        kinds,
        linear={"conv", "short_conv"},
        full={"full_attention"},
        dtype=state_dtype(config),
    )


def zaya_conv(config: Config) -> LinearState | None:
    """ZAYA: attention layers compress Q and K by convolutions and keep the last hidden state."""
    layers = config.layers()
    kinds = config.names("zaya_layers")
    attention = (
        tuple(index for index, kind in enumerate(kinds) if kind == "a")
        if kinds
        else tuple(range(0, layers, 2))
    )
    heads, kv_heads = config.count("num_attention_heads"), config.count("num_key_value_heads")
    first, second = config.whole("cca_time0") or 2, config.whole("cca_time1") or 2
    state = CcaState(
        channels=(heads + kv_heads) * config.count("head_dim"),
        padding=first + second - 2,
        hidden_size=config.count("hidden_size"),
    )
    return LinearState(
        layers=attention,
        full_attention_layers=attention,
        state=state,
        ssm_dtype=state_dtype(config),
    )


def inkling_conv(config: Config) -> LinearState | None:
    """Inkling: short convolutions over K, V and both outputs of every layer."""
    every = tuple(range(config.layers()))
    heads = config.count("num_key_value_heads")
    head_dim = config.whole("head_dim") or (
        config.count("hidden_size") // config.count("num_attention_heads")
    )
    sliding_heads = config.whole("swa_num_key_value_heads")
    state = StreamConvState(
        num_kv_heads=heads,
        head_dim=head_dim,
        sliding_kv_heads=heads if sliding_heads is None else sliding_heads,
        sliding_head_dim=config.whole("swa_head_dim") or head_dim,
        hidden_size=config.count("hidden_size"),
        conv_kernel=config.whole("sconv_kernel_size") or 4,
    )
    return LinearState(layers=every, full_attention_layers=every, state=state, ssm_dtype="bfloat16")
