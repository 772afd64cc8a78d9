"""Conversations whose rows hold only what each turn adds: the whole prompt and its tokens."""

from __future__ import annotations

import msgspec

from kvplan.replay.requests import BlockIds, TokenRuns
from kvplan.replay.runs import Said
from kvplan.replay.workloads.rows import MAX_TOKENS, OUT_OF_RANGE, BadRow, shown

MAX_CONTEXT = 1 << 24
BITS_64 = (1 << 64) - 1


class Turn(msgspec.Struct, frozen=True):
    """A turn as the server sees it: everything said before, then what it adds."""

    t_ns: int
    input_len: int
    identity: TokenRuns
    follows: bool


class Conversations:
    """Remembers what every session said.

    A token of a hashed block is (block, position) folded into one number; what no hash covers and
    every answer are the session's own.
    """

    def __init__(self) -> None:
        self.said: dict[str, Said] = {}
        self.times: dict[str, int] = {}

    def turn(
        self,
        session: str,
        t_ns: int | None,
        added: int,
        output_len: int,
        identity: BlockIds | None,
    ) -> Turn:
        """The next turn of a session; one without a time may come as early as the one before."""
        follows = session in self.said
        earliest = self.times.get(session)
        if t_ns is None and earliest is None:
            raise BadRow("the first turn of a session has no timestamp")
        now = max(t for t in (t_ns, earliest) if t is not None)
        said = self.said.get(session) or Said(len(self.said) + 1)
        input_len = said.length + added
        if input_len + output_len > MAX_CONTEXT:
            raise BadRow(
                f"session {shown(session)} grows to {input_len + output_len} tokens",
                reason=OUT_OF_RANGE,
            )
        ask(said, added, identity)
        said.add_own(output_len)
        self.said[session] = said
        self.times[session] = now
        return Turn(now, input_len, said.tokens(), follows)


def ask(said: Said, added: int, identity: BlockIds | None) -> None:
    """What a turn adds to its prompt: its hashed blocks, then what only this turn has."""
    left = added
    if identity is not None:
        for block in identity.ids:
            size = min(identity.block_size, left)
            said.add((block & BITS_64) * MAX_TOKENS, size)
            left -= size
    said.add_own(left)
