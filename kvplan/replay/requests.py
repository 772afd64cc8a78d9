"""What every workload reader yields and the replay consumes: one request of a trace."""

from __future__ import annotations

import msgspec

from kvplan.errors import TraceError
from kvplan.units import ceil_div


class BlockIds(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Prefix identity by hashed blocks: equal leading ids mean equal leading tokens.

    `ids` cover the prompt from its first token, `block_size` tokens each; the last one may cover
    less than a whole block, and what lies behind the last one is shared with nobody. Ids are
    compared within a `namespace` (a file or session that restarts its ids has its own).
    """

    ids: tuple[int, ...]
    block_size: int
    namespace: str = ""


class TokenRuns(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Prefix identity by tokens of prompt and answer, `length` of them, in runs of rising ids.

    A run ends at its place in `stops`; its ids, less their positions, are its number in `shifts`.
    The turns of a conversation share both lists: what later ones append lies beyond `length`.
    """

    shifts: list[int]
    stops: list[int]
    length: int


class TokenIds(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Prefix identity by the prompt's own tokens, `input_len` of them, and the answer's if known."""

    prompt: tuple[int, ...]
    output: tuple[int, ...] = ()


Identity = BlockIds | TokenIds | TokenRuns


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request: when it arrives, how long it is, and what it shares with others.

    `t_ns` counts from the first kept row. `output_len` is what the trace recorded (0: prefill
    only). `max_new` is what the client asked for, None where the trace does not say (no public
    one does). `delay_ns`, where given, replaces the arrival time: the request comes that long
    after the previous answer of its session.
    """

    rid: str
    t_ns: int
    input_len: int
    output_len: int
    max_new: int | None = None
    session: str | None = None
    identity: Identity | None = None
    delay_ns: int | None = None

    def __post_init__(self) -> None:
        if self.input_len < 1 or self.output_len < 0 or self.t_ns < 0:
            raise impossible(self)
        if self.max_new is not None and self.max_new < 0:
            raise TraceError(f"request '{self.rid}' asks for {self.max_new} new tokens")
        if self.delay_ns is not None and self.delay_ns < 0:
            raise impossible(self)
        if self.identity is None:
            return
        identity = self.identity
        if isinstance(identity, TokenIds) and len(identity.prompt) != self.input_len:
            raise TraceError(
                f"request '{self.rid}' has {len(identity.prompt)} token ids for {self.input_len} tokens"
            )
        if isinstance(identity, TokenRuns) and identity.length < self.input_len:
            raise TraceError(
                f"request '{self.rid}' has {identity.length} token ids for {self.input_len} tokens"
            )
        if isinstance(identity, BlockIds):
            if identity.block_size < 1:
                raise TraceError(f"request '{self.rid}' has blocks of {identity.block_size} tokens")
            if len(identity.ids) > ceil_div(self.input_len, identity.block_size):
                raise TraceError(
                    f"request '{self.rid}' has {len(identity.ids)} blocks of {identity.block_size} "
                    f"for {self.input_len} tokens"
                )


def impossible(request: Request) -> TraceError:
    """The refusal of a request whose time or lengths no server has seen."""
    if request.input_len < 1:
        return TraceError(f"request '{request.rid}' has an input of {request.input_len} tokens")
    if request.output_len < 0:
        return TraceError(f"request '{request.rid}' has an output of {request.output_len} tokens")
    return TraceError(f"request '{request.rid}' arrives before the trace starts")
