"""Which layers of a hybrid model are linear, and what state they keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from kvplan.errors import InputError
from kvplan.spec.hf.config import Config
from kvplan.spec.state import (
    CcaState,
    KdaState,
    LightningState,
    LinearState,
    Mamba2State,
    ShortConvState,
    StateDtype,
    StateKind,
    StreamConvState,
)

LinearRule = Callable[[Config], LinearState | None]

STATE_DTYPES = frozenset({"float32", "bfloat16", "float16"})
NEMOTRON_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
FULL_NAMES = frozenset({"full_attention", "attention"})


def nemotron_h(config: Config) -> LinearState | None:
    """Mamba2, attention, MLP and MoE layers by list or by pattern string."""
    kinds = config.names("layers_block_type") or nemotron_pattern(config)
    heads, head_dim = config.count("mamba_num_heads"), config.count("mamba_head_dim")
    state = Mamba2State(
        intermediate_size=heads * head_dim,
        num_groups=config.count("n_groups" if config.has("n_groups") else "mamba_n_groups"),
        num_heads=heads,
        head_dim=head_dim,
        state_size=config.count("ssm_state_size"),
        conv_kernel=config.count("conv_kernel" if config.has("conv_kernel") else "mamba_d_conv"),
    )
    return split(state, kinds, linear={"mamba"}, full={"attention"}, dtype=state_dtype(config))


def nemotron_pattern(config: Config) -> tuple[str, ...]:
    """`M*-E` letters as layer kinds."""
    pattern = config.text("hybrid_override_pattern") or ""
    if not pattern or len(pattern) > 4096 or set(pattern) - set(NEMOTRON_LETTERS):
        raise config.refuse("hybrid_override_pattern", "must be made of the letters M, *, - and E")
    return tuple(NEMOTRON_LETTERS[letter] for letter in pattern)


def nemotron_layers(config: Config) -> int:
    """Nemotron-H counts its layers by their kinds."""
    return len(config.names("layers_block_type") or nemotron_pattern(config))


def granite_hybrid(config: Config) -> LinearState | None:
    """Mamba2 layers with a few attention layers; variants without Mamba are plain."""
    layers = config.layers()
    kinds = config.names("layer_types") or tuple(
        "attention" if (index + 1) % 6 == 0 else "mamba" for index in range(layers)
    )
    if len(kinds) != layers:
        raise config.refuse("layer_types", f"has {len(kinds)} entries for {layers} layers")
    if not set(kinds) - FULL_NAMES:
        return None
    state = Mamba2State(
        intermediate_size=(config.whole("mamba_expand") or 2) * config.count("hidden_size"),
        num_groups=config.count("mamba_n_groups"),
        num_heads=config.count("mamba_n_heads"),
        head_dim=config.count("mamba_d_head"),
        state_size=config.count("mamba_d_state"),
        conv_kernel=config.count("mamba_d_conv"),
    )
    return split(state, kinds, linear=set(kinds) - FULL_NAMES, full=FULL_NAMES)


def falcon_h1(config: Config) -> LinearState | None:
    """Attention and Mamba2 side by side in every layer."""
    intermediate = config.whole("mamba_d_ssm")
    if intermediate is None:
        intermediate = (config.whole("mamba_expand") or 2) * config.count("hidden_size")
    heads = config.count("mamba_n_heads")
    auto = config.get("mamba_d_head") in (None, "auto")
    every = tuple(range(config.layers()))
    return LinearState(
        layers=every,
        full_attention_layers=every,
        state=Mamba2State(
            intermediate_size=intermediate,
            num_groups=config.count("mamba_n_groups"),
            num_heads=heads,
            head_dim=intermediate // heads if auto else config.count("mamba_d_head"),
            state_size=config.count("mamba_d_state"),
            conv_kernel=config.count("mamba_d_conv"),
        ),
        ssm_dtype=state_dtype(config),
    )


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


def bailing_hybrid(config: Config) -> LinearState | None:
    """Ling and Ring: the last layer of every group is full; KDA where a short conv is named."""
    layers = config.layers()
    group = config.get("layer_group_size")
    if isinstance(group, list):
        linear = tuple(config.numbers("layer_group_size") or ())
        if len(linear) != layers:
            raise config.refuse(
                "layer_group_size", f"has {len(linear)} entries for {layers} layers"
            )
        kinds = tuple("linear" if flag == 1 else "full" for flag in linear)
    else:
        size = config.count("layer_group_size")
        kinds = tuple("full" if (index + 1) % size == 0 else "linear" for index in range(layers))
    heads = config.count("num_attention_heads")
    head_dim = config.whole("head_dim") or config.count("hidden_size") // heads
    kernel = config.whole("short_conv_kernel_size")
    state: StateKind = LightningState(num_heads=heads, head_dim=head_dim)
    if kernel is not None:
        state = kda(heads=heads, head_dim=head_dim, kernel=kernel)
    return split(state, kinds, linear={"linear"}, full={"full"})


def minimax_lightning(config: Config) -> LinearState | None:
    """MiniMax-Text-01 and M1: `attn_type_list`, 0 is lightning, 1 is full."""
    layers = config.layers()
    types = config.numbers("attn_type_list") or ()
    if len(types) != layers:
        raise config.refuse("attn_type_list", f"has {len(types)} entries for {layers} layers")
    heads = config.count("num_attention_heads")
    head_dim = config.whole("head_dim") or config.count("hidden_size") // heads
    kinds = tuple("full" if kind == 1 else "linear" for kind in types)
    state = LightningState(num_heads=heads, head_dim=head_dim)
    return split(state, kinds, linear={"linear"}, full={"full"})


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


def split(
    state: StateKind,
    kinds: tuple[str, ...],
    *,
    linear: Iterable[str],
    full: Iterable[str],
    dtype: StateDtype = "float32",
) -> LinearState | None:
    """Layers by kind; None where no layer is linear."""
    linear, full = set(linear), set(full)
    layers = tuple(index for index, kind in enumerate(kinds) if kind in linear)
    if not layers:
        return None
    return LinearState(
        layers=layers,
        full_attention_layers=tuple(index for index, kind in enumerate(kinds) if kind in full),
        state=state,
        ssm_dtype=dtype,
    )


def state_dtype(config: Config) -> StateDtype:
    """`mamba_ssm_dtype` where the engine reads it; names that it does not know are float32."""
    named = config.text("mamba_ssm_dtype")
    return cast("StateDtype", named) if named in STATE_DTYPES else "float32"
