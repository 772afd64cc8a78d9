"""Allocators to be misused, and all that a refusal must leave as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kvplan.allocators.compressed import CompressedAllocator
from kvplan.allocators.interleaved import InterleavedAllocator
from kvplan.allocators.paged import PagedAllocator
from kvplan.allocators.ring import RingAllocator
from kvplan.allocators.sliding import SlidingAllocator
from kvplan.allocators.sparse import SparseAllocator
from kvplan.allocators.token import TokenAllocator
from kvplan.allocators.unified import UnifiedAllocator
from kvplan.errors import KvplanError, PoolError
from kvplan.pools.rows import RequestRows
from kvplan.pools.storage import open_storage


def paged() -> Any:
    return PagedAllocator(64, 4)


def sliding() -> Any:
    return SlidingAllocator(64, 48, 4)


def unified() -> Any:
    return UnifiedAllocator(64 * 8, 4, full_token_bytes=4, swa_token_bytes=2)


def ring() -> Any:
    rows = RequestRows(3, 1, storage=open_storage("cpu"))
    return RingAllocator(64, 4, ring_size=6, rows=rows)


def sparse() -> Any:
    return SparseAllocator(64, 4)


def token() -> Any:
    return TokenAllocator(64)


def compressed() -> Any:
    return CompressedAllocator(64, 64, 4, ratios=(2, 4))


def interleaved() -> Any:
    return InterleavedAllocator(64, 4, shard_size=2)


PAGED: list[Callable[[], Any]] = [paged, sliding, unified, ring, sparse]
ALL = [*PAGED, token, compressed, interleaved]


def first_extend(pool: Any, num_tokens: int = 6) -> torch.Tensor:
    """The slots of a request's first tokens, from any allocator."""
    chains = {"rotation_bases": [None]} if isinstance(pool, InterleavedAllocator) else {}
    lens = torch.tensor([0]), torch.tensor([num_tokens])
    slots = pool.alloc_extend(*lens, torch.tensor([-1]), **chains)
    assert isinstance(slots, torch.Tensor)
    return slots


def contents(value: Any) -> Any:
    """All that an allocator keeps, as plain values: tensors, lists, sides and tables."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: contents(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [contents(each) for each in value]
    if hasattr(value, "__dict__") and type(value).__module__.startswith("kvplan."):
        return contents(vars(value))
    return repr(value)


def refused(
    pool: Any, match: str, call: Callable[[], Any], error: type[KvplanError] = PoolError
) -> None:
    """The call is refused by name and leaves the pool as it was, with sound books."""
    before = contents(pool)
    with pytest.raises(error, match=match):
        call()
    assert contents(pool) == before
    assert pool.verify_accounting() == []
