"""FP4 arithmetic: values packed two a byte, and a scale for every 16 of them."""

from __future__ import annotations

from functools import cache

import torch

BLOCK = 16
LARGEST = 6.0
BIAS = 127  # of a power-of-two scale byte
MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # of codes 0-7; codes 8-15 are negative
SIGNED = MAGNITUDES + tuple(-value for value in MAGNITUDES)
MIDPOINTS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)  # a value on one takes the larger magnitude
SMALLEST_RATIO = 1e-10  # an all-zero block still has a finite scale
LARGEST_E4M3 = 448.0


def quantize_block16(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The fp4_mx_block16 recipe: power-of-two scales over blocks of 16.

    values (tokens, heads, dim) give codes uint8 (tokens, heads, dim // 2) and scale bytes uint8
    (tokens, heads * dim // 16), one biased exponent each.
    """
    blocks = blocked(values)
    largest = blocks.abs().amax(-1, keepdim=True)
    exponents = torch.ceil(torch.log2((largest / LARGEST).clamp(min=SMALLEST_RATIO)))
    codes = encode(blocks / torch.exp2(exponents))
    scales = (exponents.squeeze(-1) + BIAS).to(torch.uint8)
    return pack(codes.reshape(values.shape)), scales.flatten(1)


def dequantize_block16(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The bfloat16 values of packed codes (tokens, heads, dim // 2) and their scale bytes."""
    values = decode(unpack(packed))
    factors = torch.exp2(scales.float() - BIAS).view(
        len(values), values.shape[1], values.shape[2] // BLOCK, 1
    )
    return (blocked(values) * factors).reshape(values.shape).to(torch.bfloat16)


def quantize_nvfp4(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The nvfp4 recipe at a global scale of 1: float8_e4m3fn scales over blocks of 16.

    values (tokens, heads, dim) give codes uint8 (tokens, heads, dim // 2) and scales uint8
    (tokens, heads, dim // 16) that hold the float8 bytes.
    """
    blocks = blocked(values)
    largest = blocks.abs().amax(-1, keepdim=True)
    scales = (largest / LARGEST).clamp(max=LARGEST_E4M3).to(torch.float8_e4m3fn)
    factors = scales.float()
    codes = encode(torch.where(factors > 0, blocks / factors, torch.zeros_like(blocks)))
    return pack(codes.reshape(values.shape)), scales.squeeze(-1).view(torch.uint8)


def dequantize_nvfp4(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The bfloat16 values of packed codes (tokens, heads, dim // 2) and their float8 scale bytes."""
    values = decode(unpack(packed))
    factors = scales.contiguous().view(torch.float8_e4m3fn).float().unsqueeze(-1)
    return (blocked(values) * factors).reshape(values.shape).to(torch.bfloat16)


def blocked(values: torch.Tensor) -> torch.Tensor:
    """float32 blocks: (..., dim) as (..., dim // 16, 16)."""
    return values.float().reshape(*values.shape[:-1], values.shape[-1] // BLOCK, BLOCK)


def encode(scaled: torch.Tensor) -> torch.Tensor:
    """The 4-bit code of each value: three bits of magnitude, one of sign."""
    bounds = constants(MIDPOINTS, scaled.device)
    magnitudes = torch.bucketize(scaled.abs().contiguous(), bounds, right=True)
    return (magnitudes + 8 * (scaled < 0)).to(torch.uint8)


def decode(codes: torch.Tensor) -> torch.Tensor:
    """float32 values of 4-bit codes."""
    return constants(SIGNED, codes.device)[codes.long()]


@cache
def constants(values: tuple[float, ...], device: torch.device) -> torch.Tensor:
    """A table on a device, copied there once: writes must not wait for the host."""
    return torch.tensor(values, device=device)


def pack(codes: torch.Tensor) -> torch.Tensor:
    """Two codes a byte along the last axis, the even one in the low half."""
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack(packed: torch.Tensor) -> torch.Tensor:
    """The codes of packed bytes."""
    return torch.stack((packed & 0xF, packed >> 4), dim=-1).flatten(-2)
