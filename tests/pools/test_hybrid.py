"""Hybrid linear models: KV in some layers, state in the others."""

from __future__ import annotations

import pytest
import torch

from kvplan.errors import PoolError
from kvplan.pools.hybrid import HybridLinearPool
from kvplan.pools.marks import mark, unmark
from kvplan.pools.mha import MhaPool
from kvplan.pools.write_loc import KVWriteLoc
from tests.pools.states import contents, fill, with_siblings


@pytest.fixture
def pool(anywhere) -> HybridLinearPool:
    full = MhaPool(
        size=64,
        page_size=8,
        layer_ids=(3, 7),
        num_heads=1,
        head_dim=16,
        dtype=torch.bfloat16,
        storage=anywhere,
    )
    return HybridLinearPool(full, with_siblings(anywhere))


def test_full_layers_keep_kv_and_linear_layers_keep_state(pool):
    loc = torch.tensor([9], device=pool.storage.device)
    number = torch.tensor([4], device=pool.storage.device)
    pool.set_kv_buffer(7, KVWriteLoc(loc), mark(number, (1, 16)), mark(number, (1, 16)))

    assert unmark(pool.read(7, loc)[0]).item() == 4
    assert pool.layer_state(5).temporal.shape == (7, 2, 4, 4)
    assert pool.bytes() == pool.full.bytes() + pool.state.bytes()


def test_the_write_door_of_a_linear_layer_says_what_it_keeps(pool):
    k = torch.zeros(1, 1, 16)
    with pytest.raises(PoolError, match="layer 5 is linear") as refusal:
        pool.set_kv_buffer(5, KVWriteLoc(torch.tensor([9])), k, k)
    assert refusal.value.hint == "use layer_state"
    with pytest.raises(PoolError, match="layer 4 has no KV in this pool"):
        pool.get_key(4)
    with pytest.raises(PoolError, match="layer 3 has no recurrent state"):
        pool.layer_state(3)


def test_a_retracted_request_comes_back_with_pages_and_state(pool):
    device = pool.storage.device
    slots = torch.arange(8, 24, device=device)
    numbers = torch.arange(16, device=device)
    for layer_id in (3, 7):
        values = mark(numbers + layer_id, (1, 16))
        pool.set_kv_buffer(layer_id, KVWriteLoc(slots), values, values)
    fill(pool.state, 2, 6)
    image = pool.save(torch.tensor([1, 2], device=device), torch.tensor([2], device=device))
    fill(pool.state, 2, 99)

    pool.load(image, torch.tensor([5, 4], device=device), torch.tensor([3], device=device))

    moved = torch.cat([slots[:8] + 32, slots[8:] + 16])
    for layer_id in (3, 7):
        assert torch.equal(unmark(pool.read(layer_id, moved)[0]), numbers + layer_id)
    assert contents(pool.state, 3) == [{6.0}] * 4
