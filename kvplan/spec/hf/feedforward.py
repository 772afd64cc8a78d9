"""Parameters of one layer's MLP or experts, under the many names that configs use."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvplan.spec.hf.config import Config
from kvplan.units import ceil_div

EXPERT_KEYS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
SHARED_KEYS = (
    "n_shared_experts",
    "num_shared_experts",
    "num_shared_expert",
    "moe_num_shared_experts",
)
SHARED_SIZE_KEYS = (
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "share_expert_dim",
    "shared_intermediate_size",
)
SHARED_BY_TYPE = {"llama4_text": 1}  # classes that have them without a key
# one up- and one down-projection instead of a gated pair
UNGATED = frozenset(
    {
        "apertus",
        "arcee",
        "bloom",
        "codegen",
        "falcon",
        "gpt2",
        "gpt_bigcode",
        "gpt_neo",
        "gpt_neox",
        "gptj",
        "mpt",
        "nemotron",
        "nemotron_h",
        "nemotron_h_puzzle",
        "opt",
        "persimmon",
        "phi",
        "starcoder2",
    }
)


class FeedForward(NamedTuple):
    """Parameters of one layer: dense and shared ones, routed experts, and the router."""

    dense: int = 0
    experts: int = 0
    router: int = 0


def feed_forward(
    text: Config, hidden: int, layer: int, num_layers: int, *, dense: bool = False
) -> FeedForward:
    """One layer's MLP; a mixture where the config makes this layer sparse."""
    matrices = 2 if text.text("model_type") in UNGATED else 3
    experts = num_experts(text)
    if dense or not experts or not is_sparse(text, layer, num_layers):
        return FeedForward(dense=matrices * hidden * dense_size(text, layer, hidden))
    inner = text.whole("routed_expert_hidden_size") or text.whole("moe_latent_size") or hidden
    size = expert_size(text, layer)
    latent = 2 * hidden * inner if inner != hidden else 0
    shared = matrices * hidden * shared_size(text, layer, size)
    beside = num_beside(text) * matrices * hidden * dense_size(text, layer, hidden)
    return FeedForward(
        dense=shared + latent + beside,
        experts=experts * matrices * inner * size,
        router=hidden * experts,
    )


def num_experts(text: Config) -> int:
    """Routed experts of a sparse layer, 0 for dense models."""
    return next((found for key in EXPERT_KEYS if (found := first(text, key))), 0)


def num_beside(text: Config) -> int:
    """Dense MLPs that a sparse layer keeps beside its experts: one in Gemma-4, two in LongCat."""
    return 2 if is_twin(text) else int(text.flag("enable_moe_block"))


def is_twin(text: Config) -> bool:
    """Whether a layer has two attentions and two dense MLPs around one mixture (LongCat)."""
    return text.text("model_type") == "longcat_flash"


def is_sparse(text: Config, layer: int, num_layers: int) -> bool:
    """Whether this layer routes to experts, by whichever key names the schedule."""
    kinds = text.names("mlp_layer_types")
    if kinds and layer < len(kinds):
        return kinds[layer] != "dense"
    every = text.get("moe_layer_freq")
    if isinstance(every, list):
        return layer < len(every) and every[layer] != 0
    listed = text.get("moe_layers_enum")
    if isinstance(listed, str) and listed:
        return str(layer) in listed.split(",")
    if isinstance(listed, list):
        return layer in listed
    if layer in (text.numbers("mlp_only_layers") or ()):
        return False
    first_sparse = max(
        (text.whole(key) or 0)
        for key in ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
    )
    last = text.whole("moe_layer_end_index")
    step = text.whole("decoder_sparse_step") or text.whole("interleave_moe_layer_step") or 1
    return first_sparse <= layer <= (num_layers if last is None else last) and (
        (layer + 1) % step == 0
    )


def nas_block(text: Config, layer: int, part: str) -> dict[str, Any] | None:
    """One part ("attention" or "ffn") of a Nemotron-NAS block; None for other models."""
    blocks = text.items("block_configs")
    if not blocks or layer >= len(blocks) or not isinstance(blocks[layer], dict):
        return None
    found = blocks[layer].get(part)
    return found if isinstance(found, dict) else None


def nas_size(block: dict[str, Any], hidden: int) -> int:
    """Width of a Nemotron-NAS MLP: a multiple of two thirds of the hidden size, rounded to 256."""
    multiple = block.get("ffn_mult")
    if block.get("no_op") or not isinstance(multiple, int | float) or not 0 < multiple < 1000:
        return 0
    return ceil_div(int(2 * multiple * hidden / 3), 256) * 256


def dense_size(text: Config, layer: int, hidden: int) -> int:
    """Width of a dense MLP."""
    block = nas_block(text, layer, "ffn")
    if block is not None:
        return nas_size(block, hidden)
    for key in (
        "intermediate_size_mlp",
        "dense_intermediate_size",
        "intermediate_size",
        "ffn_hidden_size",
        "ffn_dim",
        "n_inner",
    ):
        named = first(text, key, layer)
        if named:
            return adjusted(text, named)
    return 4 * hidden


def adjusted(text: Config, size: int) -> int:
    """LFM2 shrinks its MLP to two thirds and rounds up to whole multiples."""
    if not text.flag("block_auto_adjust_ff_dim"):
        return size
    shrunk = int(int(2 * size / 3) * (text.number("block_ffn_dim_multiplier") or 1))
    multiple = text.whole("block_multiple_of") or 1
    return ceil_div(shrunk, multiple) * multiple


def expert_size(text: Config, layer: int) -> int:
    """Width of one routed expert."""
    for key in ("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size"):
        if named := first(text, key, layer):
            return named
    return 0


def shared_size(text: Config, layer: int, expert: int) -> int:
    """Width of all shared experts together."""
    named = next((found for key in SHARED_SIZE_KEYS if (found := first(text, key, layer))), 0)
    fixed = SHARED_BY_TYPE.get(text.text("model_type") or "", 0)
    count = next((found for key in SHARED_KEYS if (found := first(text, key, layer))), fixed)
    if named:
        return named * max(1, count) if text.has("moe_shared_expert_intermediate_size") else named
    return count * expert


def first(text: Config, key: str, layer: int = 0) -> int:
    """A whole number, or this layer's of a list."""
    value = text.get(key)
    if isinstance(value, list):
        numbers = text.numbers(key) or (0,)
        return max(0, numbers[min(layer, len(numbers) - 1)])
    return text.whole(key) or 0
