"""Widths, layer ranges and state shapes of one rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import assert_never

import msgspec

from kvplan.errors import CombinationError, InputError
from kvplan.spec.model import ModelSpec
from kvplan.spec.state import (
    CcaState,
    KdaState,
    LightningState,
    LinearState,
    Mamba2State,
    ShortConvState,
    StateKind,
    StreamConvState,
)

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


class StageLayers(msgspec.Struct, frozen=True):
    """Layer ids of one pipeline stage, by what they keep for a token or a request."""

    full: tuple[int, ...]
    sliding: tuple[int, ...]
    linear: tuple[int, ...]
    indexer: tuple[int, ...]  # DSA layers that own index keys


class StateShapes(msgspec.Struct, frozen=True):
    """One slot of one linear layer on one rank: conv windows and the recurrent state."""

    conv: tuple[tuple[int, int], ...]
    temporal: tuple[int, ...]


def kv_heads_per_rank(total: int, attn_tp: int, dcp: int = 1) -> int:
    """KV heads on one rank: heads shard over attn_tp // dcp groups, at least one each."""
    return max(1, total // max(1, attn_tp // dcp))


def stage_range(
    num_layers: int, pp_rank: int, pp_size: int, partition: Sequence[int] | None = None
) -> range:
    """Layer ids of one pipeline stage; the last stages take one more when it does not divide.

    Without pipeline parallelism a partition has no say.
    """
    if pp_size == 1:
        return range(num_layers)
    if pp_size > num_layers:
        raise CombinationError(
            f"{pp_size} pipeline stages for {num_layers} layers leave some without any",
            hint=f"lower --pp-size to at most {num_layers}",
        )
    if partition is None:
        base, rest = divmod(num_layers, pp_size)
        partition = [base] * (pp_size - rest) + [base + 1] * rest
    check_partition(partition, num_layers, pp_size)
    start = sum(partition[:pp_rank])
    return range(start, start + partition[pp_rank])


def check_partition(partition: Sequence[int], num_layers: int, pp_size: int) -> None:
    """Refuse a layer partition that does not cover the model stage by stage."""
    if len(partition) != pp_size:
        raise InputError(
            f"the layer partition names {len(partition)} stages, pipeline parallelism has {pp_size}",
            hint="give one layer count per stage",
        )
    if any(layers < 0 for layers in partition) or sum(partition) != num_layers:
        raise InputError(
            f"the layer partition {','.join(map(str, partition))} sums to {sum(partition)}, the model has {num_layers} layers",
            hint=f"make the counts sum to {num_layers}",
        )


def stage_layers(model: ModelSpec, stage: range) -> StageLayers:
    """The stage's layers by kind; a full layer of a looped model holds kv_layers_per_layer times K and V."""
    sliding = (
        tuple(layer for layer in model.sliding.layers if layer in stage) if model.sliding else ()
    )
    linear = tuple(layer for layer in model.linear.layers if layer in stage) if model.linear else ()
    candidates = model.linear.full_attention_layers if model.linear else stage
    full = tuple(layer for layer in candidates if layer in stage and layer not in sliding)
    indexer: tuple[int, ...] = ()
    if model.indexer:
        indexer = tuple(layer for layer in full if layer not in model.indexer.shared_topk_layers)
    return StageLayers(full=full, sliding=sliding, linear=linear, indexer=indexer)


def state_shapes(state: StateKind, attn_tp: int) -> StateShapes:
    """Shapes of one slot in one linear layer on one of attn_tp ranks."""
    match state:
        case Mamba2State():
            groups = sharded_groups(state.num_groups, attn_tp)
            conv_dim = state.intermediate_size + 2 * groups * state.state_size
            heads = divided(state.num_heads, attn_tp, "state heads")
            return StateShapes(
                conv=((divided(conv_dim, attn_tp, "conv channels"), state.conv_kernel - 1),),
                temporal=(heads, state.head_dim, state.state_size),
            )
        case KdaState():
            value = divided(state.num_heads * state.head_dim, attn_tp, "value channels")
            key = divided(state.num_k_heads * state.head_k_dim, attn_tp, "key channels")
            heads = divided(state.num_heads, attn_tp, "state heads")
            return StateShapes(
                conv=((state.conv_kernel - 1, value + 2 * key),),
                temporal=(heads, state.head_dim, state.head_dim),
            )
        case LightningState():
            heads = divided(state.num_heads, attn_tp, "state heads")
            return StateShapes(conv=((0, 0),), temporal=(heads, state.head_dim, state.head_dim))
        case ShortConvState():
            channels = divided(state.conv_dim, attn_tp, "conv channels")
            return StateShapes(
                conv=((channels, state.conv_kernel - 1),), temporal=(1, state.conv_dim, 0)
            )
        case CcaState():
            channels = divided(state.channels, attn_tp, "conv channels")
            return StateShapes(
                conv=((channels, state.padding), (state.hidden_size, 1)), temporal=(1, 1, 0)
            )
        case StreamConvState():
            return StateShapes(conv=stream_windows(state, attn_tp), temporal=(0, 0, 0))
        case _:
            assert_never(state)


def stream_windows(state: StreamConvState, attn_tp: int) -> tuple[tuple[int, int], ...]:
    """K and V of the full and of the sliding geometry, and both layer outputs."""
    full = kv_heads_per_rank(state.num_kv_heads, attn_tp) * state.head_dim
    sliding = kv_heads_per_rank(state.sliding_kv_heads, attn_tp) * state.sliding_head_dim
    widths = (full, full, sliding, sliding, state.hidden_size, state.hidden_size)
    return tuple((state.conv_kernel - 1, width) for width in widths)


def sharded_groups(num_groups: int, attn_tp: int) -> int:
    """Conv groups over all ranks: replicated up to one a rank where they do not divide."""
    return num_groups if num_groups % attn_tp == 0 else attn_tp


def divided(count: int, attn_tp: int, what: str) -> int:
    """count // attn_tp, refused where it does not divide."""
    if count % attn_tp:
        raise CombinationError(
            f"{count} {what} do not divide over {attn_tp} attention ranks",
            hint="choose a tensor-parallel width that divides them",
        )
    return count // attn_tp


def state_bytes_per_layer(linear: LinearState, attn_tp: int, ssm_dtype: str | None = None) -> int:
    """Bytes of one state slot in one linear layer on one rank; ssm_dtype overrides the model's."""
    shapes = state_shapes(linear.state, attn_tp)
    conv_elems = sum(math.prod(shape) for shape in shapes.conv)
    temporal_elems = math.prod(shapes.temporal)
    temporal_dtype = ssm_dtype or linear.ssm_dtype
    return (
        conv_elems * DTYPE_BYTES[linear.conv_dtype] + temporal_elems * DTYPE_BYTES[temporal_dtype]
    )
