"""What the prefix cache compares: a request's tokens, by their ids or by hashed blocks."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Protocol

from kvplan.replay.requests import BlockIds, Request, TokenIds, TokenRuns
from kvplan.replay.runs import RunKey


class Key(Protocol):
    """Token identities by position. What a position holds never changes, more may be appended."""

    def page(self, position: int, page_size: int) -> Hashable:
        """What the page at a position holds: equal pages behind equal prefixes are shared."""

    def common(self, other: Key, start: int, stop: int) -> int:
        """First position in `start .. stop` where two keys with equal prefixes part."""


class TokenKey:
    """Explicit token ids; outputs may be appended as they come. What is not known nobody shares."""

    __slots__ = ("tokens",)

    def __init__(self, tokens: Iterable[Hashable]) -> None:
        self.tokens = list(tokens)

    def page(self, position: int, page_size: int) -> Hashable:
        stop = position + page_size
        if stop > len(self.tokens):
            return self
        return self.tokens[position] if page_size == 1 else tuple(self.tokens[position:stop])

    def common(self, other: Key, start: int, stop: int) -> int:
        if self is other:
            return stop
        if not isinstance(other, TokenKey):
            return start
        mine, theirs = self.tokens, other.tokens
        stop = max(start, min(stop, len(mine), len(theirs)))
        step = 1
        while start < stop:
            end = min(start + step, stop)
            if mine[start:end] != theirs[start:end]:
                if end == start + 1:
                    return start
                stop, step = end, max((end - start) // 2, 1)
            else:
                start, step = end, 2 * step
        return stop

    def known(self, start: int, stop: int) -> list[Hashable]:
        """The tokens `start .. stop`, as far as they are known."""
        return self.tokens[start:stop]


class OwnKey:
    """Tokens that no other key shares."""

    __slots__ = ()

    def page(self, position: int, page_size: int) -> Hashable:  # noqa: ARG002
        return self

    def common(self, other: Key, start: int, stop: int) -> int:
        return stop if self is other else start


class BlockKey:
    """Hashed blocks of a chain, then tokens that nobody shares.

    A page belongs to the block of its last token, so a block is shared up to its last whole page.
    The last block of a prompt may be partial: it is the same block only at the same length.
    """

    __slots__ = ("block_size", "covered", "namespace", "units")

    def __init__(self, input_len: int, identity: BlockIds) -> None:
        self.namespace = identity.namespace
        self.block_size = identity.block_size
        self.units: tuple[Hashable, ...] = identity.ids
        self.covered = min(len(self.units) * self.block_size, input_len)
        partial = self.covered % self.block_size
        if partial:
            self.units = (*self.units[:-1], (self.units[-1], partial))

    def page(self, position: int, page_size: int) -> Hashable:
        last = position + page_size - 1
        if last >= self.covered:
            return self
        size = self.block_size
        units: Hashable = self.units[last // size]
        if page_size > size:  # ids need not be chained: all blocks of the page count
            units = self.units[position // size : last // size + 1]
        return self.namespace, size, units

    def common(self, other: Key, start: int, stop: int) -> int:
        if self is other:
            return stop
        if (
            not isinstance(other, BlockKey)
            or self.namespace != other.namespace
            or self.block_size != other.block_size
        ):
            return start
        size = self.block_size
        stop = min(stop, self.covered, other.covered)
        for index in range(start // size, -(-stop // size)):
            if self.units[index] != other.units[index]:
                return max(start, index * size)
        return max(start, stop)


def key_of(request: Request) -> Key:
    """The key of a workload's request: what its trace knows about the tokens, and no more."""
    identity = request.identity
    if identity is None:
        return OwnKey()
    if isinstance(identity, TokenIds):
        return TokenKey([*identity.prompt, *identity.output])
    if isinstance(identity, TokenRuns):
        return RunKey(identity)
    return BlockKey(request.input_len, identity)
