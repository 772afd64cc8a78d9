"""What a speculative algorithm's rule sees, and what it answers."""

from __future__ import annotations

import msgspec

from kvplan.sizing.provenance import Origin
from kvplan.sizing.resolve.backends import Backends
from kvplan.sizing.resolve.launch import Launch
from kvplan.sizing.resolve.parallel import Layout


class Setting(msgspec.Struct, frozen=True):
    """What an algorithm's rule sees: the launch, its ranks, its backends and its page."""

    launch: Launch
    layout: Layout
    backends: Backends
    page: int


class Numbers(msgspec.Struct, frozen=True):
    """Resolved steps, branches and draft tokens, and where they came from."""

    steps: int | None
    topk: int | None
    draft_tokens: int | None
    origin: Origin
