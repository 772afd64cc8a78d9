"""How many new tokens admission reckons with."""

from __future__ import annotations

MAX_NEW_ESTIMATE = 4096  # of one request, at most


def expected_new(max_new: int, outputs: int) -> int:
    """New tokens that admission reserves for a waiting request."""
    return min(max(max_new - outputs, 0), MAX_NEW_ESTIMATE)
