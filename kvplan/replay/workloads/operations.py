"""Operations on the pools by request name, as recorded and replayed."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kvplan.replay.workloads.rows import MAX_TOKENS

Names = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
Length = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]


class Recorded(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="op",
):
    """Base of the operations: tagged by `op`, at a step of the run if one is known."""

    step: int | None = None


class Alloc(Recorded, frozen=True, kw_only=True, tag="alloc"):
    """Each request takes a row."""

    requests: Names


class Extend(Recorded, frozen=True, kw_only=True, tag="extend"):
    """Each request grows from `prefix_len` to `seq_len` tokens; a first one may start behind a cached prefix."""

    requests: Names
    prefix_lens: tuple[Length, ...]
    seq_lens: tuple[Length, ...]


class Decode(Recorded, frozen=True, kw_only=True, tag="decode"):
    """Each request grows by one token."""

    requests: Names


class Free(Recorded, frozen=True, kw_only=True, tag="free"):
    """Each request gives back its row and its tokens."""

    requests: Names


class Evict(Recorded, frozen=True, kw_only=True, tag="evict"):
    """The cache gives back at least so many tokens."""

    num_tokens: Length


Operation = Alloc | Extend | Decode | Free | Evict
