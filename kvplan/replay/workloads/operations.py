"""Operations on the pools by request name, as recorded and replayed."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import msgspec

from kvplan.replay.workloads.rows import MAX_TOKENS

Names = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
Length = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]
# slots that a request was given for its positions `start .. stop`
Span = tuple[str, Length, Length]
Spans = Annotated[tuple[Span, ...], msgspec.Meta(min_length=1)]
Side = Literal["both", "full", "sliding"]


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
    """Each request takes a row; with `prefixes` it starts with cached slots, spans one after another."""

    requests: Names
    prefixes: tuple[tuple[Span, ...], ...] = ()


class Extend(Recorded, frozen=True, kw_only=True, tag="extend"):
    """Each request grows from `prefix_len` to `seq_len` tokens; a first one may start behind a cached prefix."""

    requests: Names
    prefix_lens: tuple[Length, ...]
    seq_lens: tuple[Length, ...]


class Decode(Recorded, frozen=True, kw_only=True, tag="decode"):
    """Each request grows by one token."""

    requests: Names


class Reserve(Recorded, frozen=True, kw_only=True, tag="reserve"):
    """Each request gets slots up to `seq_lens`, those for draft tokens among them."""

    requests: Names
    seq_lens: tuple[Length, ...]


class Follow(Recorded, frozen=True, kw_only=True, tag="follow"):
    """From position `start` on a request's row has the slots of these spans: the cache's."""

    request: str
    start: Length
    spans: Spans


class Release(Recorded, frozen=True, kw_only=True, tag="release"):
    """Slots go back, of two pools on both sides or on one; with `more` together with the next ones."""

    spans: Spans
    side: Side = "both"
    more: bool = False


class Move(Recorded, frozen=True, kw_only=True, tag="move"):
    """The sliding slots beside `incoming` stand beside `kept` from now on."""

    kept: Spans
    incoming: Spans


class TakeState(Recorded, frozen=True, kw_only=True, tag="take_state"):
    """One slot of recurrent state goes out, to a request where one is named.

    `state` is what later operations call it.
    """

    state: Length
    request: str | None = None


class FreeStates(Recorded, frozen=True, kw_only=True, tag="free_states"):
    """Slots of recurrent state go back."""

    states: Annotated[tuple[Length, ...], msgspec.Meta(min_length=1)]


class Leave(Recorded, frozen=True, kw_only=True, tag="leave"):
    """Each request gives back its row; its tokens stay in the cache until they are released."""

    requests: Names


class Free(Recorded, frozen=True, kw_only=True, tag="free"):
    """Each request gives back its row and the tokens that it still owns."""

    requests: Names


class Evict(Recorded, frozen=True, kw_only=True, tag="evict"):
    """The cache gives back at least so many tokens, of the request that left first."""

    num_tokens: Length


Operation = (
    Alloc
    | Extend
    | Decode
    | Reserve
    | Follow
    | Release
    | Move
    | TakeState
    | FreeStates
    | Leave
    | Free
    | Evict
)
NAMES = tuple(str(kind.__struct_config__.tag) for kind in get_args(Operation))
