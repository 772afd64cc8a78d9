"""Delta-rule hybrids: gated delta nets, and Kimi delta attention."""

from __future__ import annotations

from kvplan.errors import InputError
from kvplan.spec.hf.config import Config
from kvplan.spec.hf.linear import FULL_NAMES, split, state_dtype
from kvplan.spec.state import KdaState, LinearState, Mamba2State


def delta_net(config: Config) -> Mamba2State:
    """Gated delta net as Mamba2: values are the channels, keys the groups."""
    value_dim, value_heads = (
        config.count("linear_value_head_dim"),
        config.count("linear_num_value_heads"),
    )
    return Mamba2State(
        intermediate_size=value_dim * value_heads,
        num_groups=config.count("linear_num_key_heads"),
        num_heads=value_heads,
        head_dim=value_dim,
        state_size=config.count("linear_key_head_dim"),
        conv_kernel=config.count("linear_conv_kernel_dim"),
    )


def qwen_delta_net(config: Config) -> LinearState | None:
    """Qwen3-Next and Qwen3.5: every n-th layer is full."""
    layers, interval = config.layers(), config.whole("full_attention_interval")
    if interval:
        kinds = tuple(
            "full_attention" if (index + 1) % interval == 0 else "linear_attention"
            for index in range(layers)
        )
    else:
        kinds = (config.names("layer_types") or ())[:layers]
    if len(kinds) != layers:
        raise InputError("'full_attention_interval' is missing", where=config.where())
    return split(
        delta_net(config),
        kinds,
        linear={"linear_attention"},
        full=FULL_NAMES,
        dtype=state_dtype(config),
    )


def gigachat_delta_net(config: Config) -> LinearState | None:
    """GigaChat-3.5: `layer_types`, or a list of the full layers."""
    layers = config.layers()
    kinds = config.names("layer_types")
    if kinds is None:
        full = set(config.numbers("full_attention_layers") or ())
        kinds = tuple(
            "full_attention" if index in full else "linear_attention" for index in range(layers)
        )
    if len(kinds) != layers:
        raise config.refuse("layer_types", f"has {len(kinds)} entries for {layers} layers")
    linear = {"linear_attention"}
    return split(
        delta_net(config), kinds, linear=linear, full=set(kinds) - linear, dtype=state_dtype(config)
    )


def jet_delta_net(config: Config) -> LinearState | None:
    """Jet-Nemotron: jet blocks among full and sliding layers, which share one pool."""
    inner = config.inner("efficient_attention_config")
    jet = inner.inner("jet") if inner else None
    if jet is None:
        raise config.refuse("efficient_attention_config", "must describe the 'jet' blocks")
    heads, key_dim = jet.count("num_heads"), jet.count("head_dim")
    value_dim = int(key_dim * (jet.number("expand_v") or 1))
    state = Mamba2State(
        intermediate_size=heads * value_dim,
        num_groups=heads,
        num_heads=heads,
        head_dim=value_dim,
        state_size=key_dim,
        conv_kernel=jet.count("conv_size"),
    )
    kinds = config.names("layer_types") or ()
    return split(state, kinds, linear={"jet"}, full={"attn", "swa"}, dtype=state_dtype(config))


def kimi_delta(config: Config) -> LinearState | None:
    """Kimi-Linear and K3: one-based lists of the KDA layers."""
    return delta_lists(config, first_id=1)


def glm_delta(config: Config) -> LinearState | None:
    """GLM-5-Next: zero-based lists, or `layer_types`, or three of four layers."""
    if config.has("linear_attn_config"):
        return delta_lists(config, first_id=0)
    layers = config.layers()
    kinds = config.names("layer_types") or tuple(
        "full_attention" if index % 4 == 3 else "linear_attention" for index in range(layers)
    )
    state = kda(
        heads=config.whole("linear_num_heads") or 64,
        head_dim=config.whole("linear_head_dim") or 128,
        kernel=config.whole("linear_conv_kernel_dim") or 4,
    )
    linear = {"linear_attention"}
    return split(state, kinds[:layers], linear=linear, full=set(kinds) - linear)


def delta_lists(config: Config, *, first_id: int) -> LinearState | None:
    """KDA layers by the lists of `linear_attn_config`; the others are full."""
    linear = config.inner("linear_attn_config")
    if linear is None:
        return None
    listed = {index - first_id for index in linear.numbers("kda_layers") or ()}
    if not listed:
        return None
    layers = range(config.layers())
    return LinearState(
        layers=tuple(index for index in layers if index in listed),
        full_attention_layers=tuple(index for index in layers if index not in listed),
        state=kda(
            heads=linear.count("num_heads"),
            head_dim=linear.count("head_dim"),
            kernel=linear.count("short_conv_kernel_size"),
        ),
    )


def kda(*, heads: int, head_dim: int, kernel: int) -> KdaState:
    """KDA with as many key heads as value heads."""
    return KdaState(
        num_heads=heads,
        head_dim=head_dim,
        num_k_heads=heads,
        head_k_dim=head_dim,
        conv_kernel=kernel,
    )
