"""HiSparse: logical slots at the door, fewer on the device, all of them on the host."""

from __future__ import annotations

import pytest
import torch

from kvplan.errors import PoolError
from kvplan.pools.dsa import PackedMlaPool
from kvplan.pools.hisparse import HisparsePool
from kvplan.pools.host import HostTier
from kvplan.pools.index_keys import IndexKeyPool
from kvplan.pools.marks import mark, unmark
from kvplan.pools.write_loc import KVWriteLoc

PAGE, DEVICE, RATIO = 64, 128, 4
ROW = (1, 576)


@pytest.fixture
def pool(anywhere) -> HisparsePool:
    latent = PackedMlaPool(
        size=DEVICE,
        page_size=PAGE,
        layer_ids=(0, 1),
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        dtype=torch.float8_e4m3fn,
        storage=anywhere,
    )
    keys = IndexKeyPool(size=DEVICE * RATIO, layer_ids=(0, 1), head_dim=128, storage=anywhere)
    return HisparsePool(latent, host_to_device_ratio=RATIO, index_keys=keys)


def table(pool: HisparsePool, pages: dict[int, int]) -> torch.Tensor:
    found = torch.zeros(pool.size + PAGE + 1, dtype=torch.long)
    found[-1] = -1
    for logical, device in pages.items():
        found[logical * PAGE : (logical + 1) * PAGE] = torch.arange(PAGE) + device * PAGE
    return found.to(pool.storage.device)


def test_the_logical_space_is_larger_than_the_device(pool):
    assert pool.size == 512
    assert {tuple(entry.tensor.shape) for entry in pool.tensors()} == {(192, 1, 656), (9, 8448)}


def test_writes_go_through_the_mapping(pool):
    pool.register_mapping(table(pool, {7: 1}))
    slots = torch.arange(7 * PAGE, 8 * PAGE, device=pool.storage.device)

    pool.set_kv_buffer(1, KVWriteLoc(slots), mark(slots, ROW))

    assert torch.equal(unmark(pool.read(1, slots)[0]), slots)
    assert torch.equal(unmark(pool.device_pool.read(1, slots - 6 * PAGE)[0]), slots)


def test_a_token_that_is_not_on_the_device_cannot_be_read(pool):
    pool.register_mapping(table(pool, {7: 1}))
    if pool.storage.device.type == "cpu":
        with pytest.raises(PoolError, match="slot 70 is not on the device"):
            pool.read(0, torch.tensor([448, 70]))


def test_pages_swap_through_the_host_side(pool):
    device = pool.storage.device
    host = pool.host_side()
    pool.register_mapping(table(pool, {3: 1}))
    slots = torch.arange(3 * PAGE, 4 * PAGE, device=device)
    for layer_id in (0, 1):
        pool.set_kv_buffer(layer_id, KVWriteLoc(slots), mark(slots, ROW))
        host.back_up(layer_id, torch.tensor([1], device=device), torch.tensor([3]))
    pool.register_mapping(table(pool, {5: 1, 3: 2}))
    other = torch.arange(5 * PAGE, 6 * PAGE, device=device)
    pool.set_kv_buffer(0, KVWriteLoc(other), mark(other, ROW))

    host.restore(0, torch.tensor([3]), torch.tensor([2], device=device))

    assert torch.equal(unmark(pool.read(0, slots)[0]), slots)
    assert torch.equal(unmark(pool.read(0, other)[0]), other)
    assert host.size == pool.size + PAGE


def test_what_cannot_be_is_refused(pool):
    k = mark(torch.tensor([1]), ROW)
    with pytest.raises(PoolError, match="no mapping is registered"):
        pool.set_kv_buffer(0, KVWriteLoc(torch.tensor([64])), k)
    with pytest.raises(PoolError, match="keeps its own host side"):
        HostTier(pool, size=PAGE)
    with pytest.raises(PoolError, match="only in part"):
        pool.layer_buffers(0)
    with pytest.raises(PoolError, match="ratio must be at least 1, it is 0"):
        HisparsePool(pool.device_pool, host_to_device_ratio=0)
    with pytest.raises(PoolError, match="cover 512 tokens, the logical space has 256"):
        HisparsePool(pool.device_pool, host_to_device_ratio=2, index_keys=pool.index_keys)
