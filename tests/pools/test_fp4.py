"""FP4 and block-scaled fp8 arithmetic against figures worked out by hand."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import example, given

from kvplan.pools import fp4, fp8_blocks

GRID = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (0.0, 0),
        (0.24, 0),
        (0.25, 1),
        (0.75, 2),
        (1.6, 3),
        (2.5, 5),
        (3.5, 6),
        (4.99, 6),
        (5.0, 7),
        (100.0, 7),
        (-0.1, 8),
        (-6.0, 15),
    ],
)
def test_a_value_takes_the_nearest_code_and_ties_go_up(value, code):
    assert fp4.encode(torch.tensor([value])).item() == code


def test_codes_pack_low_half_first():
    packed = fp4.pack(torch.tensor([[1, 2, 15, 0]], dtype=torch.uint8))

    assert packed.tolist() == [[0x21, 0x0F]]
    assert fp4.unpack(packed).tolist() == [[1, 2, 15, 0]]


def test_block16_scales_are_biased_powers_of_two():
    values = torch.zeros(1, 1, 32)
    values[0, 0, 0] = 12.0  # 12 / 6 = 2^1
    values[0, 0, 16] = 13.0  # 13 / 6 needs 2^2

    codes, scales = fp4.quantize_block16(values)

    assert scales.tolist() == [[128, 129]]
    assert (codes[0, 0, 0].item(), codes[0, 0, 8].item()) == (7, 5)  # 6 and 3.25 -> 3


def test_nvfp4_scales_are_fp8_bytes():
    values = torch.zeros(1, 1, 32)
    values[0, 0, 3] = 9.0  # 9 / 6 = 1.5

    codes, scales = fp4.quantize_nvfp4(values)

    assert scales.view(torch.float8_e4m3fn).float().tolist() == [[[1.5, 0.0]]]
    assert codes[0, 0, 1].item() == 0x70


@given(st.integers(-10, 6), st.lists(st.integers(0, 15), min_size=16, max_size=16))
def test_grid_values_times_a_power_of_two_survive_block16(exponent, digits):
    values = fp4.decode(torch.tensor(digits, dtype=torch.uint8))
    values[0] = 6.0
    scaled = (values * 2.0**exponent).view(1, 1, 16)

    back = fp4.dequantize_block16(*fp4.quantize_block16(scaled))

    assert torch.equal(back.float().abs(), scaled.abs())
    assert torch.equal(back.float(), scaled)


@given(st.lists(st.floats(-400, 400, width=32), min_size=32, max_size=32))
def test_quantized_values_stay_within_half_a_step(values):
    given_values = torch.tensor(values).view(1, 1, 32)
    block_max = given_values.abs().view(2, 16).amax(1)

    for back in (
        fp4.dequantize_block16(*fp4.quantize_block16(given_values)),
        fp4.dequantize_nvfp4(*fp4.quantize_nvfp4(given_values)),
    ):
        error = (back.float() - given_values).abs().view(2, 16).amax(1)
        assert bool(
            (error <= block_max / 3 + 0.01).all()
        )  # half the step from 4 to 6, of 6 times the scale


TINY = torch.finfo(torch.float32).tiny


@example([TINY] + [0.0] * 63, 32)
@example([-1e-31] * 64, 64)
@given(
    # below normal numbers no scale of eight exponent bits leaves a step fine enough
    st.lists(st.floats(-1e4, 1e4, width=32, allow_subnormal=False), min_size=64, max_size=64),
    st.sampled_from([32, 64]),
)
def test_block_scaled_fp8_stays_within_a_sixteenth(values, block):
    given_values = torch.tensor(values).view(1, 64)
    largest = given_values.abs().max()

    for quantize, dequantize in (
        (fp8_blocks.quantize_power_of_two, fp8_blocks.dequantize_power_of_two),
        (fp8_blocks.quantize_float, fp8_blocks.dequantize_float),
    ):
        data, scales = quantize(given_values, block)
        error = (dequantize(data, scales).float() - given_values).abs()
        assert scales.shape == (1, 64 // block)
        assert bool((error <= largest / 14).all())


def test_power_of_two_scales_are_the_smallest_that_fit():
    data, scales = fp8_blocks.quantize_power_of_two(torch.tensor([[448.0, 0.0], [449.0, 1.0]]), 2)

    assert scales.float().tolist() == [[1.0], [2.0]]
    assert data.float().tolist() == [[448.0, 0.0], [224.0, 0.5]]
