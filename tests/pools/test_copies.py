"""Pages copied within the device, to the host and back."""

from __future__ import annotations

import pytest
import torch

from kvplan.errors import PoolError
from kvplan.pools.base import KvPool, SlotPlace, page_rows
from kvplan.pools.host import HostTier, load_pages, save_pages
from kvplan.pools.marks import mark
from kvplan.pools.storage import Storage
from kvplan.pools.write_loc import KVWriteLoc
from tests.pools.kinds import KINDS, LAYERS, SIZE


def fill(pool: KvPool) -> None:
    """Random bytes everywhere: a copy must not care what they mean."""
    for entry in pool.tensors():
        entry.tensor.view(torch.uint8).random_(0, 256)


def pages_of(pool: KvPool, pages: torch.Tensor) -> list[torch.Tensor]:
    return [
        page_rows(buffer)[pages].contiguous().view(torch.uint8).clone()
        for layer_id in LAYERS
        for buffer in pool.layer_buffers(layer_id)
    ]


def on(pool: KvPool, *pages: int) -> torch.Tensor:
    return torch.tensor(pages, device=pool.storage.device)


def test_a_page_copy_moves_every_byte_of_the_page_and_no_other(pool):
    fill(pool)
    source, target = on(pool, 1, 3), on(pool, 2, 4)
    rest = torch.tensor(
        [page for page in range(pool.num_pages) if page not in (2, 4)], device=pool.storage.device
    )
    wanted, untouched = pages_of(pool, source), pages_of(pool, rest)

    pool.copy_pages(source, target)

    assert all(map(torch.equal, pages_of(pool, target), wanted))
    assert all(map(torch.equal, pages_of(pool, rest), untouched))


def test_overlapping_page_lists_read_before_they_write(pool):
    fill(pool)
    wanted = pages_of(pool, on(pool, 1, 2, 3))

    pool.copy_pages(on(pool, 1, 2, 3), on(pool, 2, 3, 4))

    assert all(map(torch.equal, pages_of(pool, on(pool, 2, 3, 4)), wanted))


def test_every_row_of_a_kv_buffer_belongs_to_a_page(pool):
    for layer_id in LAYERS:
        for buffer in pool.layer_buffers(layer_id):
            assert len(buffer.tensor) >= pool.num_pages * buffer.rows_per_page


def test_a_host_round_trip_restores_pages_bit_for_bit(pool):
    if pool.no_host_form:
        with pytest.raises(PoolError, match=pool.no_host_form):
            HostTier(pool, size=pool.page_size)
        return
    fill(pool)
    tier = HostTier(pool, size=4 * pool.page_size)
    device_pages, host_pages = on(pool, 1, 4, 2), torch.tensor([3, 0, 2])
    wanted = pages_of(pool, device_pages)
    for layer_id in LAYERS:
        tier.back_up(layer_id, device_pages, host_pages)
    fill(pool)

    back = on(pool, 3, 1, 4)
    for layer_id in LAYERS:
        tier.restore(layer_id, host_pages, back)

    assert all(map(torch.equal, pages_of(pool, back), wanted))
    per_page = sum(entry.numel() for entry in pages_of(pool, on(pool, 1)))
    assert tier.bytes() == 4 * per_page


def test_a_layer_is_the_unit_of_transfer(storage: Storage):
    pool = KINDS["mha-bfloat16"](storage)
    fill(pool)
    tier = HostTier(pool, size=32)
    page = torch.tensor([1])
    for layer_id in LAYERS:
        tier.back_up(layer_id, page, page)
    before = pool.get_key(LAYERS[0])[16:32].clone(), pool.get_key(LAYERS[1])[16:32].clone()
    fill(pool)

    tier.restore(LAYERS[0], page, page)

    assert torch.equal(
        pool.get_key(LAYERS[0])[16:32].view(torch.int16), before[0].view(torch.int16)
    )
    assert not torch.equal(
        pool.get_key(LAYERS[1])[16:32].view(torch.int16), before[1].view(torch.int16)
    )


def test_saved_pages_come_back_in_other_pages(pool):
    if pool.no_host_form:
        with pytest.raises(PoolError, match=pool.no_host_form):
            save_pages(pool, on(pool, 1))
        return
    fill(pool)
    wanted = pages_of(pool, on(pool, 2, 1))
    image = save_pages(pool, on(pool, 2, 1))
    fill(pool)

    load_pages(pool, image, on(pool, 3, 4))

    assert all(map(torch.equal, pages_of(pool, on(pool, 3, 4)), wanted))


@pytest.mark.parametrize(
    ("source", "target", "problem"),
    [
        ([1, 2], [3], "do not pair"),
        ([1], [SIZE], f"names slot {SIZE}"),
        ([-1], [1], "names slot -1"),
    ],
)
def test_bad_page_lists_are_refused_before_anything_moves(storage, source, target, problem):
    pool = KINDS["mha-bfloat16"](storage)
    fill(pool)
    before = pages_of(pool, torch.arange(pool.num_pages))

    with pytest.raises(PoolError, match=problem):
        pool.copy_pages(torch.tensor(source), torch.tensor(target))

    assert all(map(torch.equal, before, pages_of(pool, torch.arange(pool.num_pages))))


def test_host_capacities_count_tokens_in_whole_pages(storage):
    pool = KINDS["mha-bfloat16"](storage)

    assert HostTier(pool, size=48).num_pages == 3
    with pytest.raises(PoolError, match="40 tokens are not whole pages of 16"):
        HostTier(pool, size=40)


def test_index_keys_have_host_bytes_of_their_own(storage):
    tier = HostTier(KINDS["dsa-fp8-packed"](storage), size=128)

    assert tier.bytes_by_name() == {"latent": 3 * 128 * 656, "index_key": 2 * 2 * 64 * 132}


def test_a_slot_is_found_where_its_bytes_changed(pool):
    """What a write changes lies within the places that the pool names for the slot."""
    slot = 2 * pool.page_size + pool.page_size // 2
    shapes = pool.row_shapes(LAYERS[1])
    number = torch.tensor([5], device=pool.storage.device)
    v = None if shapes.v is None else mark(number, shapes.v)
    pool.set_kv_buffer(LAYERS[1], KVWriteLoc(on(pool, slot)), mark(number, shapes.k), v)

    places = {place.name: place for place in pool.places(LAYERS[1], slot)}
    written = 0
    for buffer in pool.layer_buffers(LAYERS[1]):
        changed = buffer.tensor.view(torch.uint8).flatten().nonzero()
        place = places[buffer.name]
        if len(changed):
            written += 1
            assert place.offset_bytes <= int(changed.min())
            assert int(changed.max()) < place.offset_bytes + place.num_bytes
    assert written


def test_places_are_exact_for_rows_of_slots_and_refuse_others(storage):
    pool = KINDS["mha-bfloat16"](storage)

    assert pool.places(LAYERS[0], 17) == [
        SlotPlace("k", 17 * 128, 128),
        SlotPlace("v", 17 * 64, 64),
    ]
    with pytest.raises(PoolError, match="the place names slot 528"):
        pool.places(LAYERS[0], 528)
