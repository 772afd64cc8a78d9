"""How many parameters a config describes, by the part that shards or replicates alike."""

from __future__ import annotations

from typing import NamedTuple

from kvplan.spec.hf.config import MAX_LAYERS, Config
from kvplan.spec.hf.feedforward import FeedForward, feed_forward, is_twin, nas_block
from kvplan.spec.hf.mamba import nemotron_pattern
from kvplan.spec.hf.modality import Parts
from kvplan.spec.hf.projections import Projections, attention, mixer
from kvplan.spec.model import ModelSpec

BLOCK_DRAFTS = ("DFlash", "DSpark", "Qwen3DSpark", "LingDSpark", "MiniMaxDFlash")
DENSE_MTP = frozenset({"ernie4_5_moe", "longcat_flash", "step3p5"})  # MTP layers without experts
TOWER_LAYERS = ("num_hidden_layers", "depth", "layers", "vt_num_hidden_layers")
TOWER_WIDTHS = ("hidden_size", "embed_dim", "width", "vt_hidden_size")


class Parameters(NamedTuple):
    """Parameters of each part of a model."""

    embedding: int
    head: int  # 0 where the embedding is the head
    attention: int  # shards over the attention ranks
    replicated: int  # every rank keeps it: MLA's down-projections, routers, norms
    dense: int
    experts: int
    mtp: int  # of the MTP layers without their experts, which only a draft worker loads
    mtp_experts: int
    tower: int

    @property
    def total(self) -> int:
        return sum(self)


def count_parameters(found: Parts, model: ModelSpec) -> Parameters:
    """Parameters by part; biases and other vectors are left out."""
    text = found.text
    layers = [one_layer(text, model, layer) for layer in range(model.num_layers)]
    norms = 2 * model.hidden_size * model.num_layers
    mtp, mtp_experts = mtp_parameters(text, model, layers[-1])
    return Parameters(
        embedding=embedding(text, model),
        head=head(text, model),
        attention=sum(mix.sharded for mix, _ in layers),
        replicated=sum(mix.replicated + rest.router for mix, rest in layers) + norms,
        dense=sum(rest.dense for _, rest in layers) + joints(text, model),
        experts=sum(rest.experts for _, rest in layers),
        mtp=mtp,
        mtp_experts=mtp_experts,
        tower=tower_parameters(found.top),
    )


def one_layer(text: Config, model: ModelSpec, layer: int) -> tuple[Projections, FeedForward]:
    """Mixer and MLP of one layer; Nemotron-H has one or the other."""
    kind = nemotron_kind(text, model, layer)
    linear = model.linear
    mix, rest = Projections(0), FeedForward()
    skips = (nas_block(text, layer, "attention") or {}).get("no_op")
    full = linear is None or layer in linear.full_attention_layers
    if kind == "attention" or (kind is None and full and not skips):
        mix = attention(text, model, layer)
    if is_twin(text):
        mix = Projections(2 * mix.sharded, 2 * mix.replicated)
    if linear is not None and layer in linear.layers:
        extra = mixer(text, model, linear)
        mix = Projections(mix.sharded + extra.sharded, mix.replicated + extra.replicated)
    if kind in (None, "mlp", "moe"):
        dense = kind == "mlp"
        rest = feed_forward(text, model.hidden_size, layer, model.num_layers, dense=dense)
    return mix, rest


def nemotron_kind(text: Config, model: ModelSpec, layer: int) -> str | None:
    """The one thing that a Nemotron-H layer is; None for other models."""
    if not model.architecture.startswith("NemotronH"):
        return None
    return (text.names("layers_block_type") or nemotron_pattern(text))[layer]


def embedding(text: Config, model: ModelSpec) -> int:
    """Token embeddings, and Gemma's embeddings per layer; block drafts use the target's."""
    if model.architecture.startswith(BLOCK_DRAFTS):
        return 0
    vocabulary = text.whole("padded_vocab_size") or text.whole("vocab_size") or 0
    width = text.whole("hidden_size_per_layer_input") or 0
    each_layer = (text.whole("vocab_size_per_layer_input") or 0) * width * model.num_layers
    return vocabulary * model.hidden_size + each_layer


def head(text: Config, model: ModelSpec) -> int:
    """The output head, 0 where it is tied or the target's; EAGLE3 has a vocabulary of its own."""
    if model.architecture.startswith(BLOCK_DRAFTS) or model.architecture.endswith("Eagle"):
        return 0
    draft = text.whole("draft_vocab_size")
    if draft:
        return draft * model.hidden_size
    return 0 if text.flag("tie_word_embeddings") else embedding(text, model)


def joints(text: Config, model: ModelSpec) -> int:
    """What a draft adds to take in the target's hidden states."""
    hidden = model.hidden_size
    if model.architecture.endswith("Eagle3"):
        taken = 3 * (text.whole("target_hidden_size") or hidden) * hidden
        wider = attention(text, model, 0).sharded - model.num_attention_heads * hidden * (
            text.whole("head_dim") or hidden // model.num_attention_heads
        )
        return taken + wider
    if model.architecture.endswith("Eagle"):
        return 2 * hidden * hidden
    inner = text.inner("dflash_config")
    if inner is None:
        return 0
    return len(inner.numbers("target_layer_ids") or ()) * hidden * hidden


def mtp_parameters(
    text: Config, model: ModelSpec, last: tuple[Projections, FeedForward]
) -> tuple[int, int]:
    """MTP layers like the last one, with the joint of embedding and hidden state; their experts."""
    count = min(model.mtp_layers or text.whole("mtp_num_hidden_layers") or 0, model.num_layers)
    mix, rest = last
    if is_twin(text):
        mix = attention(text, model, 0)
    if text.text("model_type") in DENSE_MTP:
        rest = feed_forward(text, model.hidden_size, 0, model.num_layers, dense=True)
    joint = 2 * model.hidden_size**2
    each = mix.sharded + mix.replicated + rest.dense + rest.router + joint
    return count * each, count * rest.experts


def tower_parameters(top: Config) -> int:
    """The vision tower as a plain transformer, from the keys of its config."""
    tower = top.inner("vision_config")
    if tower is None:
        return 0
    layers = next((found for key in TOWER_LAYERS if (found := tower.whole(key))), 0)
    hidden = next((found for key in TOWER_WIDTHS if (found := tower.whole(key))), 0)
    inner = tower.whole("intermediate_size") or 4 * hidden
    return min(layers, MAX_LAYERS) * (4 * hidden**2 + 2 * hidden * inner)
