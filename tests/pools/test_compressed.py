"""DeepSeek-V4: windows, compressed latents, index keys and state rings."""

from __future__ import annotations

import pytest
import torch

from kvplan.errors import PoolError
from kvplan.pools.base import page_rows
from kvplan.pools.compressed import CompressedPool, RatioPool
from kvplan.pools.host import HostTier
from kvplan.pools.index_keys import IndexKeyPool
from kvplan.pools.marks import mark, unmark
from kvplan.pools.packed_latent import PackedLatentPool
from kvplan.pools.state_ring import StateRing
from kvplan.pools.storage import Storage
from kvplan.pools.write_loc import KVWriteLoc

PAGE = 256
FULL, SLIDING = 8 * PAGE, 3 * PAGE
ROW = (1, 512)


def latents(
    storage: Storage, size: int, page_size: int, layer_ids: tuple[int, ...]
) -> PackedLatentPool:
    return PackedLatentPool(
        size=size,
        page_size=page_size,
        padding_tokens=PAGE,
        layer_ids=layer_ids,
        nope_dim=448,
        rope_dim=64,
        storage=storage,
    )


def ring(storage: Storage, slots: int = 3 * 8, ratio: int = 4) -> StateRing:
    return StateRing(
        name="state",
        slots=slots,
        ring=8,
        ratio=ratio,
        width=6,
        layer_ids=(1, 2),
        dtype=torch.float32,
        storage=storage,
    )


@pytest.fixture
def pool(anywhere) -> CompressedPool:
    keys = IndexKeyPool(
        size=FULL // 4, layer_ids=(1, 2), head_dim=128, padding_tokens=PAGE, storage=anywhere
    )
    return CompressedPool(
        size=FULL,
        page_size=PAGE,
        window=latents(anywhere, SLIDING, PAGE, (0, 1, 2, 3)),
        by_ratio=(
            RatioPool(
                4,
                latents(anywhere, FULL // 4, PAGE // 4, (1, 2)),
                rings=(ring(anywhere),),
                index_keys=keys,
            ),
            RatioPool(128, latents(anywhere, FULL // 128, PAGE // 128, (3,))),
        ),
    )


def test_pages_of_every_ratio_have_the_engines_bytes(pool):
    shapes = {(entry.name, entry.layers): tuple(entry.tensor.shape) for entry in pool.tensors()}

    assert shapes["latent", (0,)] == (4, 149760)
    assert tuple(pool.by_ratio[4].latent.get_key(1).shape) == (12, 37440)
    assert tuple(pool.by_ratio[128].latent.get_key(3).shape) == (136, 1728)
    assert shapes["index_key", (2,)] == (12, 8448)
    assert shapes["state", (2,)] == (36, 12)


def test_a_window_is_written_at_sliding_slots(pool):
    device = pool.storage.device
    loc = KVWriteLoc(
        torch.tensor([2000, 2001], device=device), swa_loc=torch.tensor([300, 301], device=device)
    )
    numbers = torch.tensor([8, 9], device=device)
    for layer_id in pool.layer_ids:
        pool.set_kv_buffer(layer_id, loc, mark(numbers + layer_id, ROW))

    for layer_id in pool.layer_ids:
        assert torch.equal(unmark(pool.read(layer_id, loc.swa_loc)[0]), numbers + layer_id)
    with pytest.raises(PoolError, match="layer 0 slides"):
        pool.set_kv_buffer(0, KVWriteLoc(loc.loc), mark(numbers, ROW))


@pytest.mark.parametrize(("layer_id", "ratio"), [(1, 4), (3, 128)])
def test_a_latent_goes_by_the_token_that_ends_its_group(pool, layer_id, ratio):
    device = pool.storage.device
    slots = torch.arange(PAGE + ratio - 1, FULL, ratio, device=device)
    numbers = torch.arange(len(slots), device=device)

    pool.set_compressed(layer_id, KVWriteLoc(slots), mark(numbers, ROW))

    assert torch.equal(unmark(pool.read_compressed(layer_id, slots)), numbers)


def test_tokens_inside_a_group_and_windows_alone_are_refused(pool):
    k = mark(torch.tensor([1]), ROW)
    if pool.storage.device.type == "cpu":
        with pytest.raises(PoolError, match="slot 258 does not end a group of 4 tokens"):
            pool.set_compressed(1, KVWriteLoc(torch.tensor([258])), k)
    with pytest.raises(PoolError, match="layer 0 keeps its window alone"):
        pool.set_compressed(0, KVWriteLoc(torch.tensor([259])), k)
    with pytest.raises(PoolError, match="layer 3 of ratio 128 has no index keys"):
        pool.set_index_keys(3, KVWriteLoc(torch.tensor([383])), k, k)


def test_index_keys_go_by_group_too(pool):
    device = pool.storage.device
    slots = torch.tensor([259, 2047], device=device)
    keys = torch.ones(2, 128, device=device).to(torch.float8_e4m3fn)
    scales = torch.tensor([[0.5], [2.0]], device=device)

    pool.set_index_keys(2, KVWriteLoc(slots), keys, scales)

    assert torch.equal(pool.by_ratio[4].index_keys.read(2, slots // 4)[1], scales)


def test_a_page_copy_takes_the_compressed_pages_and_the_mapped_window(pool):
    device = pool.storage.device
    table = torch.zeros(FULL + PAGE + 1, dtype=torch.long, device=device)
    for full, sliding in ((1, 1), (2, 3)):
        table[full * PAGE : (full + 1) * PAGE] = torch.arange(PAGE, device=device) + sliding * PAGE
    pool.register_mapping(table)
    slots = torch.arange(PAGE, 2 * PAGE, device=device)
    pool.set_kv_buffer(0, KVWriteLoc(slots, swa_loc=pool.translate(slots)), mark(slots, ROW))
    ends = slots[3::4]
    pool.set_compressed(1, KVWriteLoc(ends), mark(ends, ROW))
    wide = torch.tensor([383, 511], device=device)
    pool.set_compressed(3, KVWriteLoc(wide), mark(wide, ROW))

    pool.copy_pages(torch.tensor([1], device=device), torch.tensor([2], device=device))

    assert torch.equal(unmark(pool.read(0, pool.translate(slots + PAGE))[0]), slots)
    assert torch.equal(unmark(pool.read_compressed(1, ends + PAGE)), ends)
    assert torch.equal(unmark(pool.read_compressed(3, wide + PAGE)), wide)


def test_full_pages_and_windows_have_host_tiers_of_their_own(anywhere, pool):
    for tiered, page in ((pool, 2), (pool.window, 1)):
        tier = HostTier(tiered, size=2 * PAGE)
        for entry in pool.tensors():
            if entry.name != "state":
                entry.tensor.random_(0, 256)
        pages = torch.tensor([page], device=anywhere.device)
        wanted = [
            page_rows(buffer)[pages].clone()
            for layer_id in tiered.layer_ids
            for buffer in tiered.layer_buffers(layer_id)
        ]
        for layer_id in tiered.layer_ids:
            tier.back_up(layer_id, pages, torch.tensor([1]))
        for entry in pool.tensors():
            entry.tensor.zero_()
        for layer_id in tiered.layer_ids:
            tier.restore(layer_id, torch.tensor([1]), pages)

        now = [
            page_rows(buffer)[pages]
            for layer_id in tiered.layer_ids
            for buffer in tiered.layer_buffers(layer_id)
        ]
        assert len(wanted) >= 4
        assert all(map(torch.equal, now, wanted))


def test_ring_slots_follow_rows_or_sliding_pages(anywhere):
    states = ring(anywhere)
    device = anywhere.device

    rows, positions = torch.tensor([0, 2, 1]), torch.tensor([9, 7, -1])
    by_row = states.slots_of_positions(rows.to(device), positions.to(device))
    assert by_row.tolist() == [1, 23, -1]
    by_window = states.slots_of_window(torch.tensor([PAGE + 10, -1], device=device), PAGE)
    assert by_window.tolist() == [10, -1]


def test_a_reset_ring_reads_empty_and_the_last_slot_always_does(anywhere):
    states = ring(anywhere)
    device = anywhere.device
    slots = torch.tensor([8, 15, 16, -1], device=device)
    states.write(1, slots, torch.ones(4, 12, device=device))

    states.reset(torch.tensor([1], device=device))

    empty = [0.0] * 6 + [float("-inf")] * 6
    assert states.read(1, slots).tolist() == [empty, empty, [1.0] * 12, empty]
