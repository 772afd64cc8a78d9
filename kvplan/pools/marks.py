"""Numbers written as rows of values that every kind of cache gives back, fp4 and fp8 included."""

from __future__ import annotations

import math

import torch

from kvplan.errors import PoolError
from kvplan.pools.fp4 import BLOCK, LARGEST, decode, encode

DIGITS = 8  # magnitudes of FP4


def mark(numbers: torch.Tensor, row: tuple[int, ...]) -> torch.Tensor:
    """float32 (tokens, *row) that spell out numbers int64 (tokens,), base 8, over and over.

    The first value of every 16 is the largest one, so that all blocks share one scale.
    """
    width = math.prod(row)
    lanes = digit_lanes(width, numbers.device)
    if not len(lanes) and len(numbers):
        raise PoolError(f"a row of {row} values has no room for a mark")
    if len(numbers) and int(numbers.max()) >= DIGITS ** min(len(lanes), 20):
        raise PoolError(
            f"a row of {row} values marks numbers below {DIGITS ** len(lanes)}, not {int(numbers.max())}"
        )
    values = torch.full((len(numbers), width), LARGEST, device=numbers.device)
    values[:, lanes] = decode(digits(numbers, len(lanes)))
    return values.view(len(numbers), *row)


def unmark(values: torch.Tensor) -> torch.Tensor:
    """Whether each row (tokens, *row) still spells one number: the number, or -1 where it does not."""
    flat = values.float().flatten(1)
    lanes = digit_lanes(flat.shape[1], flat.device)
    found = encode(flat).long()
    place = DIGITS ** torch.arange(min(len(lanes), 20), device=flat.device)
    numbers = (found[:, lanes[: len(place)]] * place).sum(1)
    wanted = torch.full_like(found, DIGITS - 1)
    wanted[:, lanes] = digits(numbers, len(lanes))
    return torch.where((found == wanted).all(1), numbers, -1)


def digits(numbers: torch.Tensor, count: int) -> torch.Tensor:
    """Base-8 digits (tokens, count), lowest first; they start over after 20 of them."""
    place = DIGITS ** (torch.arange(count, device=numbers.device) % 20)
    return numbers[:, None] // place % DIGITS


def digit_lanes(width: int, device: torch.device) -> torch.Tensor:
    """Positions of a row that carry digits."""
    lanes = torch.arange(width, device=device)
    return lanes[lanes % BLOCK != 0]
