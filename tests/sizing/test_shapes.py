"""Widths, stage ranges and state shapes against hand-worked and recorded figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import CombinationError, InputError
from kvplan.sizing.shapes import (
    kv_heads_per_rank,
    stage_range,
    state_bytes_per_layer,
    state_shapes,
)
from kvplan.spec.state import (
    KdaState,
    LightningState,
    LinearState,
    Mamba2State,
    ShortConvState,
)

GRANITE_SMALL = Mamba2State(
    intermediate_size=8192,
    num_groups=1,
    num_heads=128,
    head_dim=64,
    state_size=128,
    conv_kernel=4,
)
KIMI_LINEAR = KdaState(num_heads=32, head_dim=128, num_k_heads=32, head_k_dim=128, conv_kernel=4)
LING = LightningState(num_heads=64, head_dim=128)
LFM2 = ShortConvState(conv_dim=2048, conv_kernel=3)


@pytest.mark.parametrize(
    ("state", "attn_tp", "conv", "temporal"),
    [
        (GRANITE_SMALL, 8, ((1280, 3),), (16, 64, 128)),
        (KIMI_LINEAR, 4, ((3, 3072),), (8, 128, 128)),
        (LING, 4, ((0, 0),), (16, 128, 128)),
        (LFM2, 8, ((256, 2),), (1, 2048, 0)),
    ],
)
def test_state_shapes_are_those_of_the_engine(state, attn_tp, conv, temporal):
    shapes = state_shapes(state, attn_tp)

    assert shapes.conv == conv
    assert shapes.temporal == temporal


def test_a_state_slot_weighs_its_conv_and_its_temporal_part():
    linear = LinearState(layers=(0,), full_attention_layers=(1,), state=GRANITE_SMALL)

    assert state_bytes_per_layer(linear, 8) == 19150848 // 36
    assert state_bytes_per_layer(linear, 8, "bfloat16") == 1280 * 3 * 2 + 16 * 64 * 128 * 2


def test_heads_that_do_not_divide_are_refused():
    with pytest.raises(CombinationError, match="6 state heads do not divide over 4"):
        state_shapes(LightningState(num_heads=6, head_dim=64), 4)


@pytest.mark.parametrize(
    ("total", "attn_tp", "dcp", "heads"),
    [(8, 1, 1, 8), (8, 8, 1, 1), (8, 16, 1, 1), (8, 8, 4, 4), (2, 4, 1, 1), (10, 4, 1, 2)],
)
def test_kv_heads_shard_until_each_rank_keeps_one(total, attn_tp, dcp, heads):
    assert kv_heads_per_rank(total, attn_tp, dcp) == heads


def test_the_last_stages_take_the_rest():
    assert [len(stage_range(93, rank, 2)) for rank in range(2)] == [46, 47]
    assert stage_range(93, 1, 2) == range(46, 93)
    assert [len(stage_range(56, rank, 3)) for rank in range(3)] == [18, 19, 19]
    assert stage_range(61, 1, 2, (30, 31)) == range(30, 61)
    assert stage_range(61, 0, 1, (30, 31)) == range(61)


@pytest.mark.parametrize("partition", [(30, 30), (61,), (62, -1)])
def test_a_partition_that_does_not_cover_the_model_is_refused(partition):
    with pytest.raises(InputError, match="layer partition"):
        stage_range(61, 0, 2, partition)


@given(st.data())
def test_stages_tile_the_layers(data):
    num_layers = data.draw(st.integers(1, 200))
    pp_size = data.draw(st.integers(1, min(16, num_layers)))
    stages = [stage_range(num_layers, rank, pp_size) for rank in range(pp_size)]

    assert [layer for stage in stages for layer in stage] == list(range(num_layers))
    assert max(map(len, stages)) - min(map(len, stages)) <= 1


def test_more_stages_than_layers_are_refused():
    with pytest.raises(CombinationError, match="5 pipeline stages for 4 layers"):
        stage_range(4, 0, 5)
