"""How many new tokens admission reckons with."""

from __future__ import annotations

MAX_NEW_ESTIMATE = 4096  # SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION: of one request, at most


def expected_new(max_new: int, outputs: int) -> int:
    """New tokens that admission reserves for a waiting request."""
    new = max_new - outputs
    return new if 0 <= new <= MAX_NEW_ESTIMATE else max(0, min(new, MAX_NEW_ESTIMATE))
