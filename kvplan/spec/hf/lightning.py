"""Lightning attention hybrids: Ling and Ring, MiniMax-Text-01 and M1."""

from __future__ import annotations

from kvplan.spec.hf.config import Config
from kvplan.spec.hf.delta import kda
from kvplan.spec.hf.linear import split
from kvplan.spec.state import LightningState, LinearState, StateKind


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
