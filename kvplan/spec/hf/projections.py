"""Parameters of one layer's attention or state mixer, from the dims of the config."""

from __future__ import annotations

from typing import NamedTuple

from kvplan.spec.hf.config import Config
from kvplan.spec.model import Mha, ModelSpec
from kvplan.spec.state import (
    KdaState,
    LightningState,
    LinearState,
    Mamba2State,
    ShortConvState,
)


class Projections(NamedTuple):
    """Parameters that shard over the attention ranks, and those that every rank keeps."""

    sharded: int
    replicated: int = 0


def attention(text: Config, model: ModelSpec, layer: int) -> Projections:
    """Q, K, V and output of one attention layer, or MLA's down- and up-projections."""
    if not isinstance(model.attention, Mha):
        return latent_attention(text, model)
    if model.compressed is not None:
        return compressed_attention(text, model, layer)
    sliding = model.sliding
    slides = sliding is not None and layer in sliding.layers
    shape: Mha = model.attention
    if sliding is not None and slides:
        shape = Mha(
            num_kv_heads=sliding.num_kv_heads,
            head_dim=sliding.head_dim,
            v_head_dim=sliding.v_head_dim,
        )
    heads = query_heads(text, model, layer, slides=slides)
    query = heads * shape.head_dim
    if text.flag("attn_output_gate") or text.text("model_type") == "qwen3_next":
        query *= 2  # the gate comes out of the query projection
    keys = shape.num_kv_heads * shape.head_dim
    values = shape.num_kv_heads * shape.v_head_dim
    if text.flag("attention_k_eq_v") and not slides:
        values = 0
    output = heads * shape.v_head_dim
    return Projections(sharded=model.hidden_size * (query + keys + values + output))


def query_heads(text: Config, model: ModelSpec, layer: int, *, slides: bool) -> int:
    """Query heads of one layer; some sliding layers have their own count."""
    each = text.numbers("num_attention_heads_per_layer")
    if each and layer < len(each):
        return each[layer]
    other = text.inner("attention_other_setting")
    if slides and other and other.has("num_attention_heads"):
        return other.count("num_attention_heads")
    return (text.whole("swa_num_attention_heads") if slides else None) or model.num_attention_heads


def latent_attention(text: Config, model: ModelSpec) -> Projections:
    """MLA: what shrinks to the ranks is kept by every rank, the up-projections shard."""
    hidden, heads = model.hidden_size, model.num_attention_heads
    rank, rope = text.count("kv_lora_rank"), text.whole("qk_rope_head_dim") or 0
    nope = text.whole("qk_nope_head_dim") or 128
    value = text.whole("v_head_dim") or nope
    query_rank = text.whole("q_lora_rank")
    down = hidden * (rank + rope) + (hidden * query_rank if query_rank else 0)
    query = (query_rank or hidden) * heads * (nope + rope)
    up = rank * heads * (nope + value) + heads * value * hidden
    indexer = indexer_params(text, model, query_rank or hidden)
    return Projections(sharded=query + up, replicated=down + indexer)


def compressed_attention(text: Config, model: ModelSpec, layer: int) -> Projections:
    """DeepSeek-V4: low-rank query and output around one shared head, an indexer at ratio 4."""
    compressed, hidden = model.compressed, model.hidden_size
    assert compressed is not None
    head_dim = compressed.qk_nope_head_dim + compressed.qk_rope_head_dim
    width = model.num_attention_heads * head_dim
    query_rank, output_rank = text.whole("q_lora_rank") or 1024, text.whole("o_lora_rank") or 1024
    groups = text.whole("o_groups") or 8
    sharded = query_rank * width + width * output_rank + groups * output_rank * hidden
    replicated = hidden * (query_rank + head_dim)
    if compressed.ratios[layer]:
        replicated += 2 * hidden * head_dim
    if compressed.ratios[layer] == 4:
        index = (text.whole("index_n_heads") or 64) * compressed.index_head_dim
        replicated += query_rank * index + 3 * hidden * compressed.index_head_dim
    return Projections(sharded=sharded, replicated=replicated)


def indexer_params(text: Config, model: ModelSpec, query_rank: int) -> int:
    """The DSA indexer of one layer, spread evenly where some layers own none."""
    if model.indexer is None:
        return 0
    heads = text.whole("index_n_heads") or 64
    each = query_rank * heads * model.indexer.head_dim
    each += model.hidden_size * (model.indexer.head_dim + heads)
    owners = model.num_layers - len(model.indexer.shared_topk_layers)
    return each * owners // model.num_layers


def mixer(text: Config, model: ModelSpec, linear: LinearState) -> Projections:
    """One linear layer: input and output projections and the convolution."""
    hidden = model.hidden_size
    match linear.state:
        case Mamba2State() as state if text.has("linear_num_value_heads"):
            return Projections(sharded=delta_net(hidden, state))
        case Mamba2State() as state:
            groups = 2 * state.num_groups * state.state_size
            channels = state.intermediate_size + groups
            inputs = hidden * (state.intermediate_size + channels + state.num_heads)
            conv = channels * (state.conv_kernel + 1)
            return Projections(sharded=inputs + conv + state.intermediate_size * hidden)
        case KdaState() as state:
            return Projections(sharded=kimi_delta(text, hidden, state))
        case LightningState(num_heads=heads, head_dim=dim):
            return Projections(sharded=5 * hidden * heads * dim)
        case ShortConvState(conv_dim=channels, conv_kernel=kernel):
            return Projections(sharded=channels * (4 * hidden + kernel))
        case _:
            return Projections(sharded=0)  # convolutions too small to count


def delta_net(hidden: int, state: Mamba2State) -> int:
    """Q, K, V and gate, two scalars a head, the convolution, and the output."""
    keys = state.num_groups * state.state_size
    inputs = hidden * (2 * keys + 2 * state.intermediate_size + 2 * state.num_heads)
    conv = (2 * keys + state.intermediate_size) * state.conv_kernel
    return inputs + conv + state.intermediate_size * hidden


def kimi_delta(text: Config, hidden: int, state: KdaState) -> int:
    """Q, K, V and output, and two gates, low-rank unless the config says otherwise."""
    width = state.num_heads * state.head_dim
    gate = hidden * state.head_dim + state.head_dim * width
    inner = text.inner("linear_attn_config")
    full_rank = text.flag("no_kda_lora") or bool(inner and inner.flag("use_full_rank_gate"))
    output_gate = hidden * width if full_rank else gate
    return 4 * hidden * width + gate + output_gate + hidden * state.num_heads
