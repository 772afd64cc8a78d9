"""Conversations whose rows hold only what each turn adds: the whole prompt and its tokens."""

from __future__ import annotations

from itertools import chain

import msgspec

from kvplan.replay.requests import BlockIds, TokenIds
from kvplan.replay.workloads.rows import MAX_TOKENS, OUT_OF_RANGE, BadRow, shown

MAX_CONTEXT = 1 << 24
BITS_64 = (1 << 64) - 1


class Turn(msgspec.Struct, frozen=True):
    """A turn as the server sees it: everything said before, then what it adds."""

    t_ns: int
    input_len: int
    identity: TokenIds
    follows: bool


class Conversations:
    """Remembers what every session said, as runs of made-up token ids.

    A token of a hashed block is (block, position) folded into one number; what no hash covers and
    every answer get fresh negative ids.
    """

    def __init__(self) -> None:
        self.said: dict[str, list[range]] = {}
        self.times: dict[str, int] = {}
        self.fresh = 0

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
        said = self.said.get(session, [])
        input_len = sum(map(len, said)) + added
        if input_len + output_len > MAX_CONTEXT:
            raise BadRow(
                f"session {shown(session)} grows to {input_len + output_len} tokens",
                reason=OUT_OF_RANGE,
            )
        prompt = [*said, *self.prompt_runs(added, identity)]
        answer = self.fresh_run(output_len)
        self.said[session] = [*prompt, answer]
        self.times[session] = now
        tokens = TokenIds(prompt=tuple(chain.from_iterable(prompt)), output=tuple(answer))
        return Turn(now, input_len, tokens, follows)

    def prompt_runs(self, added: int, identity: BlockIds | None) -> list[range]:
        """Token ids of what a turn adds: its hashed blocks, then what only this turn has."""
        runs: list[range] = []
        left = added
        for block in identity.ids if identity else ():
            size = min(identity.block_size, left) if identity else 0
            start = (block & BITS_64) * MAX_TOKENS
            runs.append(range(start, start + size))
            left -= size
        return [*runs, self.fresh_run(left)]

    def fresh_run(self, length: int) -> range:
        """Ids that nobody else has."""
        self.fresh += length
        return range(-self.fresh, -self.fresh + length)
