"""What a step of the scheduling loop launches, and what came of it."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from kvplan.replay.prefix_cache import Slots
from kvplan.replay.sequence import Part, Sequence


class Decode(msgspec.Struct, frozen=True, gc=False):
    """A launched batch in which each request grows by one token."""

    sequences: Collection[Sequence]
    out_cache_loc: Slots | None


class Prefill(msgspec.Struct, frozen=True, gc=False):
    """A launched batch that computes parts of prompts, `num_tokens` in all.

    With mixed chunks others decode in it.
    """

    parts: list[Part]
    num_tokens: int
    out_cache_loc: Slots | None
    mixed: Decode | None = None

    def num_computed(self) -> int:
        """Tokens that pass through the model, those of decoding requests included."""
        return (
            self.num_tokens if self.mixed is None else self.num_tokens + len(self.mixed.sequences)
        )


Batch = Prefill | Decode


class Step(msgspec.Struct, frozen=True, gc=False):
    """What one turn of the loop did. Idle: `batch` is None."""

    batch: Batch | None
    retracted: tuple[Sequence, ...] = ()
    aborted: tuple[Sequence, ...] = ()
    finished: tuple[Sequence, ...] = ()
