"""The answer "it does not start": what is short, and what the engine would say."""

from __future__ import annotations

import msgspec


class Shortage(msgspec.Struct, frozen=True):
    """Too little memory. `engine_fraction` is the mem_fraction_static that the engine names."""

    what: str  # weights, state, sliding pool, tokens, requests
    problem: str
    have_bytes: int
    need_bytes: int | None = None
    engine_fraction: float | None = None
    raise_flags: tuple[str, ...] = ()
    lower_flags: tuple[str, ...] = ()
