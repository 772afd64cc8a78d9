"""Prefix hits of a workload in caches without a scheduler: requests one after another, inputs only."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Hashable, Iterable, Iterator
from typing import NamedTuple

from kvplan.replay.keys import TokenKey
from kvplan.replay.prefix_cache import PrefixCache, Slots
from kvplan.replay.requests import BlockIds, Request


class Hit(NamedTuple):
    """Tokens of one prompt that were cached, and all of its tokens."""

    cached: int
    input_len: int


def hit_rate(hits: Iterable[Hit]) -> float:
    """Share of the prompts' tokens that were cached."""
    cached = total = 0
    for hit in hits:
        cached += hit.cached
        total += hit.input_len
    return cached / total if total else 0.0


def hits_infinite(requests: Iterable[Request]) -> Iterator[Hit]:
    """Hits of a cache that forgets nothing."""
    seen: set[Hashable] = set()
    for request in requests:
        blocks = blocks_of(request)
        yield hit_of(request, leading(blocks, seen))
        seen.update(blocks)


def hits_block_lru(requests: Iterable[Request], num_blocks: int) -> Iterator[Hit]:
    """Hits of a cache that drops the least recent block, the deepest of a prompt first."""
    cache: OrderedDict[Hashable, None] = OrderedDict()
    for request in requests:
        blocks = blocks_of(request)
        yield hit_of(request, leading(blocks, cache))
        for block in reversed(blocks):
            cache[block] = None
            cache.move_to_end(block)
        while len(cache) > num_blocks:
            cache.popitem(last=False)


def hits_tree(requests: Iterable[Request], num_blocks: int, policy: str = "lru") -> Iterator[Hit]:
    """Hits of the engine's tree, which drops whole leaves."""
    num_free = num_blocks

    def release(slots: Slots) -> None:
        nonlocal num_free
        num_free += len(slots)

    cache = PrefixCache(1, release, policy)  # a page is a block here
    for request in requests:
        key = TokenKey(blocks_of(request))
        found = cache.match(key, len(key.tokens))
        yield hit_of(request, found.prefix_len)
        lock = cache.lock(found.node)
        cache.evict(len(key.tokens) - found.prefix_len - num_free)
        stop = min(len(key.tokens), found.prefix_len + num_free)
        num_free -= stop - found.prefix_len
        cache.insert(key, range(found.prefix_len, stop), found.node)
        cache.unlock(lock)


def blocks_of(request: Request) -> list[Hashable]:
    """The prompt's blocks; a partial last one counts as itself only at its length."""
    identity = request.identity
    if not isinstance(identity, BlockIds):
        return []
    blocks: list[Hashable] = [(identity.namespace, block) for block in identity.ids]
    covered = len(blocks) * identity.block_size
    if covered > request.input_len:
        blocks[-1] = (blocks[-1], request.input_len % identity.block_size)
    return blocks


def leading(blocks: list[Hashable], cached: Container[Hashable]) -> int:
    """How many blocks from the start are cached."""
    for index, block in enumerate(blocks):
        if block not in cached:
            return index
    return len(blocks)


def hit_of(request: Request, num_blocks: int) -> Hit:
    assert isinstance(request.identity, BlockIds) or not num_blocks
    size = request.identity.block_size if isinstance(request.identity, BlockIds) else 0
    return Hit(min(num_blocks * size, request.input_len), request.input_len)
