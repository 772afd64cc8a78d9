"""Byte, time and count units, and the roundings that the engine uses."""

from __future__ import annotations

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


def ceil_div(value: int, divisor: int) -> int:
    """Smallest integer not below value / divisor."""
    return -(-value // divisor)


def floor_page(num_tokens: int, page_size: int) -> int:
    """Tokens of the whole pages that fit into num_tokens."""
    return num_tokens // page_size * page_size


def ceil_page(num_tokens: int, page_size: int) -> int:
    """Tokens of the pages needed to hold num_tokens."""
    return -(-num_tokens // page_size) * page_size


def gib(num_bytes: float) -> float:
    """Bytes as GiB, for display only (the engine's log calls this GB)."""
    return num_bytes / GIB
