"""Block-scaled fp8 arithmetic: float8_e4m3fn values with a scale for every block."""

from __future__ import annotations

import torch

LARGEST = 448.0  # of float8_e4m3fn
BIAS = 127
SMALLEST = torch.finfo(torch.float32).tiny  # an all-zero block still has a finite scale


def quantize_power_of_two(values: torch.Tensor, block: int) -> tuple[torch.Tensor, torch.Tensor]:
    """values (..., dim) as float8_e4m3fn and float8_e8m0fnu scales (..., dim // block)."""
    blocks = values.float().reshape(*values.shape[:-1], values.shape[-1] // block, block)
    largest = blocks.abs().amax(-1, keepdim=True).clamp(min=SMALLEST)
    exponents = torch.ceil(torch.log2(largest / LARGEST)).clamp(-BIAS, BIAS)
    data = (blocks / torch.exp2(exponents)).flatten(-2).to(torch.float8_e4m3fn)
    return data, (exponents.squeeze(-1) + BIAS).to(torch.uint8).view(torch.float8_e8m0fnu)


def dequantize_power_of_two(data: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """bfloat16 values of float8 data (..., dim) and float8_e8m0fnu scales (..., dim // block)."""
    factors = torch.exp2(scales.contiguous().view(torch.uint8).float() - BIAS).unsqueeze(-1)
    blocks = data.float().reshape(*scales.shape, data.shape[-1] // scales.shape[-1])
    return (blocks * factors).flatten(-2).to(torch.bfloat16)


def quantize_float(values: torch.Tensor, block: int) -> tuple[torch.Tensor, torch.Tensor]:
    """values (..., dim) as float8_e4m3fn and float32 scales (..., dim // block)."""
    blocks = values.float().reshape(*values.shape[:-1], values.shape[-1] // block, block)
    scales = blocks.abs().amax(-1, keepdim=True).clamp(min=SMALLEST) / LARGEST
    return (blocks / scales).flatten(-2).to(torch.float8_e4m3fn), scales.squeeze(-1)


def dequantize_float(data: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """bfloat16 values of float8 data (..., dim) and float32 scales (..., dim // block)."""
    blocks = data.float().reshape(*scales.shape, data.shape[-1] // scales.shape[-1])
    return (blocks * scales.unsqueeze(-1)).flatten(-2).to(torch.bfloat16)
