"""MiniMax sparse attention: the index of the sparse layers beside all layers' K and V."""

from __future__ import annotations

import pytest
import torch

from kvplan.errors import PoolError
from kvplan.pools.hisparse import HisparsePool
from kvplan.pools.host import HostTier
from kvplan.pools.mha import KOnlyPool, MhaPool
from kvplan.pools.sparse import SparsePool
from kvplan.pools.storage import Storage
from kvplan.pools.write_loc import KVWriteLoc


def mha(storage: Storage, layer_ids: tuple[int, ...], size: int = 64, heads: int = 2) -> MhaPool:
    return MhaPool(
        size=size,
        page_size=8,
        layer_ids=layer_ids,
        num_heads=heads,
        head_dim=16,
        dtype=torch.bfloat16,
        storage=storage,
    )


def k_only(storage: Storage, layer_ids: tuple[int, ...], size: int = 64) -> KOnlyPool:
    return KOnlyPool(
        size=size,
        page_size=8,
        layer_ids=layer_ids,
        num_heads=1,
        head_dim=16,
        dtype=torch.bfloat16,
        storage=storage,
    )


@pytest.fixture
def pool(anywhere) -> SparsePool:
    return SparsePool(
        mains=(mha(anywhere, (0, 1, 2, 3)),),
        indexes=(mha(anywhere, (1,), heads=1), k_only(anywhere, (2, 3))),
    )


def test_the_index_of_a_layer_is_k_and_v_or_k_alone(pool):
    device = pool.storage.device
    loc = KVWriteLoc(torch.tensor([9, 30], device=device))
    values = torch.randn(2, 1, 16, device=device).bfloat16()
    pool.set_index(1, loc, values, values + 1)
    pool.set_index(3, loc, values)

    k, v = pool.read_index(1, loc.loc)
    assert torch.equal(k, values)
    assert torch.equal(v, values + 1)
    assert pool.read_index(3, loc.loc)[1] is None
    with pytest.raises(PoolError, match="v is "):
        pool.set_index(3, loc, values, values)


def test_a_dense_layer_has_no_index(pool):
    with pytest.raises(PoolError, match="layer 0 is dense") as refusal:
        pool.read_index(0, torch.tensor([8]))
    assert refusal.value.hint == "sparse layers are 1-3"


def test_index_tensors_are_named_and_travel_with_pages(pool):
    names = [entry.name for entry in pool.tensors() if entry.layers == (1,)]
    assert names == ["k", "v", "index_k", "index_v"]

    tier = HostTier(pool, size=16)
    assert set(tier.bytes_by_name()) == {"k", "v", "index_k", "index_v"}
    assert tier.bytes_by_name()["index_k"] == 3 * 16 * 16 * 2


def test_sparse_layers_may_be_on_the_device_in_part(anywhere):
    """Dense layers and the index cover the logical space, sparse K and V the device side alone."""
    pool = SparsePool(
        mains=(
            mha(anywhere, (0,), size=128),
            HisparsePool(mha(anywhere, (1, 2)), host_to_device_ratio=2),
        ),
        indexes=(k_only(anywhere, (1, 2), size=128),),
    )

    assert pool.size == 128
    assert pool.part(0).size == 128
    assert [len(entry.tensor) for entry in pool.tensors()] == [136, 136, 72, 72, 72, 72, 136, 136]
