"""What the allocator of a shared buffer keeps on its device: every tensor that can be reached from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from kvplan.allocators.unified import UnifiedAllocator


def tensors_of(thing: Any, met: set[int]) -> Iterator[torch.Tensor]:
    """Tensors below an object, each once."""
    if id(thing) in met:
        return
    met.add(id(thing))
    if isinstance(thing, torch.Tensor):
        yield thing
        return
    below = list(thing.values()) if isinstance(thing, dict) else []
    below += list(thing) if isinstance(thing, list | tuple) else []
    names = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    below += [getattr(thing, name) for name in names if hasattr(thing, name)]
    below += list(getattr(thing, "__dict__", {}).values())
    for each in below:
        yield from tensors_of(each, met)


@pytest.mark.parametrize("sides", [{"swa_token_bytes": 96}, {"state_slot_bytes": 4000}])
@pytest.mark.parametrize(("page_size", "num_ranks"), [(1, 1), (16, 1), (4, 2)])
def test_its_tables_are_all_that_it_keeps(sides, page_size, num_ranks):
    allocator = UnifiedAllocator(
        1 << 20, page_size, full_token_bytes=64, num_ranks=num_ranks, checks=False, **sides
    )
    storages = {
        each.untyped_storage().data_ptr(): each.untyped_storage().nbytes()
        for each in tensors_of(allocator, set())
        if each.numel()
    }

    assert sum(storages.values()) == allocator.table_bytes


def test_a_page_of_several_ranks_holds_as_many_tokens_in_the_same_bytes():
    alone = UnifiedAllocator(1 << 20, 4, full_token_bytes=64, state_slot_bytes=4000)
    shared = UnifiedAllocator(1 << 20, 4, full_token_bytes=64, state_slot_bytes=4000, num_ranks=2)

    assert (shared.page_size, shared.size) == (8, 2 * alone.size)
    slots = shared.alloc(8)
    assert slots is not None
    assert shared.to_full(slots).tolist()[0] % 8 == 0
    assert shared.verify_accounting() == []
