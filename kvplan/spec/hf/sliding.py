"""Which layers slide, and how far back they look, for models that the engine serves with two pools."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kvplan.errors import InputError
from kvplan.spec.hf.config import Config
from kvplan.spec.model import Mha, Sliding

SLIDES = "sliding_attention"
FULL = "full_attention"
WINDOW_KEYS = ("sliding_window_size", "sliding_window", "window_size")

LayerIds = Callable[[Config], tuple[int, ...]]


class SlidingRule(NamedTuple):
    """How one family writes down its sliding layers and their window."""

    layers: LayerIds
    window: Callable[[Config], int]
    heads: Callable[[Config, Mha], Mha]
    optional: bool = False  # without sliding layers the model has one pool


def read_sliding(config: Config, rule: SlidingRule, attention: Mha) -> Sliding | None:
    """The sliding side of a model, or None where no layer slides."""
    layers = rule.layers(config)
    if not layers and rule.optional:
        return None
    if not layers:
        raise InputError("no layer slides in a model that needs it", where=config.where())
    heads = rule.heads(config, attention)
    return Sliding(
        window=rule.window(config),
        layers=layers,
        num_kv_heads=heads.num_kv_heads,
        head_dim=heads.head_dim,
        v_head_dim=heads.v_head_dim,
    )


def same_heads(config: Config, full: Mha) -> Mha:
    """Heads of the sliding layers where the config may name them apart (MiMo-V2, Laguna)."""
    named = config.whole("swa_num_key_value_heads")
    head_dim = config.whole("swa_head_dim") or full.head_dim
    return Mha(
        num_kv_heads=full.num_kv_heads if named is None else named,
        head_dim=head_dim,
        v_head_dim=config.whole("swa_v_head_dim") or head_dim,
    )


def grouped_heads(config: Config, full: Mha) -> Mha:
    """Step-3.5 keeps the sliding layers' groups in a mapping of their own."""
    other = config.inner("attention_other_setting")
    if other is None or config.has("swa_num_key_value_heads"):
        return same_heads(config, full)
    groups = other.count("num_attention_groups")
    return Mha(num_kv_heads=groups, head_dim=full.head_dim, v_head_dim=full.head_dim)


def base_heads(config: Config, _full: Mha) -> Mha:
    """Gemma-4 names the sliding layers' heads as the plain ones."""
    head_dim = config.count("head_dim")
    return Mha(
        num_kv_heads=config.count("num_key_value_heads"), head_dim=head_dim, v_head_dim=head_dim
    )


def window(config: Config) -> int:
    """The window as it stands."""
    return next((config.count(key) for key in WINDOW_KEYS if config.has(key)), 0) or config.count(
        "sliding_window"
    )


def inclusive_window(config: Config) -> int:
    """A window that counts the token itself: the engine keeps one less."""
    return window(config) - 1


def chunk(config: Config) -> int:
    """Llama-4 attends within chunks."""
    return config.count("attention_chunk_size")


def by_layer_types(config: Config) -> tuple[int, ...]:
    """Layers that `layer_types` calls sliding; entries past the last layer are MTP layers."""
    kinds = config.names("layer_types") or ()
    layers = config.layers()
    return tuple(index for index, kind in enumerate(kinds[:layers]) if kind == SLIDES)


def by_layer_types_if_windowed(config: Config) -> tuple[int, ...]:
    """`layer_types`, of a model that slides only where it names a window (Laguna)."""
    return by_layer_types(config) if config.whole("sliding_window") else ()


def by_layer_types_else(period: int, full_at: int, *, last_full: bool = False) -> LayerIds:
    """`layer_types`, or full attention at one position of every period where it is left out."""

    def ids(config: Config) -> tuple[int, ...]:
        layers = config.layers()
        if config.has("layer_types"):
            slides = by_layer_types(config)
        else:
            slides = tuple(index for index in range(layers) if index % period != full_at)
        return tuple(index for index in slides if not (last_full and index == layers - 1))

    return ids


def by_hybrid_pattern(config: Config) -> tuple[int, ...]:
    """`hybrid_layer_pattern`: 1 slides, 0 is full (MiMo-V2); `layer_types` where it stands instead."""
    pattern = config.numbers("hybrid_layer_pattern")
    if pattern is None:
        return by_layer_types(config)
    if len(pattern) < config.layers():
        raise config.refuse(
            "hybrid_layer_pattern", f"has {len(pattern)} entries for {config.layers()} layers"
        )
    return tuple(index for index in range(config.layers()) if pattern[index] == 1)


def by_hybrid_blocks(config: Config) -> tuple[int, ...]:
    """IQuest-Q1: first layers, a repeated block, last layers."""
    if config.get("use_hybrid_layers") is False or config.get("use_sliding_window") is False:
        return ()
    block = config.names("hybrid_layers_types_block") or (FULL, SLIDES, SLIDES, SLIDES)
    repeats = config.whole("num_hybrid_layers_block")
    first = config.names("first_layers_types") or (FULL,)
    last = config.names("last_layers_types") or (FULL,) * 3
    layers = config.layers()
    kinds = (*first, *block * min(21 if repeats is None else repeats, layers), *last)
    if len(kinds) != layers:
        raise config.refuse("num_hybrid_layers_block", f"makes {len(kinds)} of {layers} layers")
    return tuple(index for index, kind in enumerate(kinds) if kind == SLIDES)


def by_local_ids(config: Config) -> tuple[int, ...]:
    """Inkling lists its local layers."""
    layers, ids = config.layers(), config.numbers("local_layer_ids") or ()
    if len(set(ids)) != len(ids) or any(not 0 <= index < layers for index in ids):
        raise config.refuse("local_layer_ids", f"must be distinct ids below {layers}")
    return tuple(sorted(ids))


def three_of_four(config: Config) -> tuple[int, ...]:
    """Llama-4: every fourth layer is global."""
    return tuple(index for index in range(config.layers()) if (index + 1) % 4)


def every_layer(config: Config) -> tuple[int, ...]:
    """All layers slide (Unlimited-OCR)."""
    return tuple(range(config.layers()))


GPT_OSS = SlidingRule(by_layer_types_else(2, 1), inclusive_window, same_heads)
GRANITE_SWA = SlidingRule(by_layer_types_else(4, 0), window, same_heads)
LLAMA_4 = SlidingRule(three_of_four, chunk, same_heads)
MIMO_V2 = SlidingRule(by_hybrid_pattern, window, same_heads)
STEP_3P5 = SlidingRule(by_layer_types, window, grouped_heads)
GEMMA_4 = SlidingRule(by_layer_types_else(6, 5, last_full=True), inclusive_window, base_heads)
LAGUNA = SlidingRule(by_layer_types_if_windowed, window, same_heads, optional=True)
INCLUSIVE = SlidingRule(by_layer_types, inclusive_window, same_heads)
BEAM = SlidingRule(
    by_layer_types_else(6, 5, last_full=True), inclusive_window, same_heads, optional=True
)
IQUEST_Q1 = SlidingRule(by_hybrid_blocks, window, same_heads)
SPARK = SlidingRule(by_layer_types_else(4, 3), inclusive_window, same_heads, optional=True)
MUSE_SPARK = SlidingRule(by_layer_types, inclusive_window, same_heads, optional=True)
INKLING = SlidingRule(by_local_ids, inclusive_window, same_heads)
UNLIMITED_OCR = SlidingRule(every_layer, window, same_heads)
