"""Full and sliding layers in one pool object, with slots of their own."""

from __future__ import annotations

import pytest
import torch

from kvplan.errors import PoolError
from kvplan.pools.host import HostTier
from kvplan.pools.marks import mark, unmark
from kvplan.pools.mha import MhaPool
from kvplan.pools.sliding import SwaPool
from kvplan.pools.write_loc import KVWriteLoc

PAGE = 8
FULL, SLIDING = 64, 32


@pytest.fixture
def pool(anywhere) -> SwaPool:
    def side(size: int, layer_ids: tuple[int, ...], heads: int) -> MhaPool:
        return MhaPool(
            size=size,
            page_size=PAGE,
            layer_ids=layer_ids,
            num_heads=heads,
            head_dim=16,
            dtype=torch.bfloat16,
            storage=anywhere,
        )

    return SwaPool(side(FULL, (1, 4), 2), side(SLIDING, (2, 3), 1))


def mapping(pool: SwaPool, pages: dict[int, int]) -> torch.Tensor:
    """The allocator's table for a few mapped pages."""
    table = torch.zeros(FULL + PAGE + 1, dtype=torch.long)
    table[-1] = -1
    for full, sliding in pages.items():
        table[full * PAGE : (full + 1) * PAGE] = torch.arange(PAGE) + sliding * PAGE
    return table.to(pool.storage.device)


def write(pool: SwaPool, layer_id: int, loc: KVWriteLoc, numbers: torch.Tensor) -> None:
    values = mark(numbers, pool.row_shapes(layer_id).k)
    pool.set_kv_buffer(layer_id, loc, values, values)


def read(pool: SwaPool, layer_id: int, slots: torch.Tensor | None) -> torch.Tensor:
    assert slots is not None
    k, v = pool.read(layer_id, slots)
    assert v is not None
    assert torch.equal(unmark(k), unmark(v))
    return unmark(k)


def test_layers_map_to_their_index_and_side(pool):
    assert pool.layers == {1: (0, False), 4: (1, False), 2: (0, True), 3: (1, True)}
    assert pool.layer_ids == (1, 2, 3, 4)
    assert pool.row_shapes(1).k == (2, 16)
    assert pool.row_shapes(3).k == (1, 16)


def test_each_layer_is_written_at_its_own_sides_slots(pool):
    device = pool.storage.device
    loc = KVWriteLoc(
        torch.tensor([8, 9, 40], device=device), swa_loc=torch.tensor([16, 17, 0], device=device)
    )
    numbers = torch.tensor([5, 6, 7], device=device)
    for layer_id in pool.layer_ids:
        write(pool, layer_id, loc, numbers + layer_id)

    assert torch.equal(read(pool, 4, loc.loc), numbers + 4)
    assert torch.equal(read(pool, 3, loc[:2].swa_loc), numbers[:2] + 3)
    assert not pool.get_key(4)[16:18].any()


def test_a_full_loc_of_its_own_wins_over_loc(pool):
    device = pool.storage.device
    loc = KVWriteLoc(
        torch.tensor([8], device=device),
        swa_loc=torch.tensor([9], device=device),
        full_loc=torch.tensor([24], device=device),
    )
    write(pool, 1, loc, torch.tensor([3], device=device))

    assert read(pool, 1, loc.full_loc).item() == 3
    assert not pool.get_key(1)[8].any()


def test_a_sliding_layer_needs_sliding_slots(pool):
    with pytest.raises(PoolError, match="layer 2 slides") as refusal:
        write(pool, 2, KVWriteLoc(torch.tensor([8])), torch.tensor([1]))
    assert "swa_loc=pool.translate(loc)" in str(refusal.value.hint)


def test_translation_follows_the_allocators_table(pool):
    pool.register_mapping(mapping(pool, {3: 2}))

    slots = torch.tensor([24, 31, 8, -1], device=pool.storage.device)
    assert pool.translate(slots).tolist() == [16, 23, 0, -1]


def test_translating_without_a_table_is_refused(pool):
    with pytest.raises(PoolError, match="no mapping is registered"):
        pool.translate(torch.tensor([1]))


def test_a_page_copy_takes_the_mapped_sliding_pages_along(pool):
    device = pool.storage.device
    pool.register_mapping(mapping(pool, {1: 2, 2: 3, 4: 1}))
    slots = torch.arange(PAGE, 2 * PAGE, device=device)
    numbers = torch.arange(PAGE, device=device)
    loc = KVWriteLoc(slots, swa_loc=pool.translate(slots))
    for layer_id in pool.layer_ids:
        write(pool, layer_id, loc, numbers)
    before = pool.sliding.get_key(2)[: 2 * PAGE].clone()

    pool.copy_pages(torch.tensor([1, 1], device=device), torch.tensor([2, 3], device=device))

    assert torch.equal(read(pool, 1, slots + PAGE), numbers)
    assert torch.equal(read(pool, 1, slots + 2 * PAGE), numbers)
    assert torch.equal(read(pool, 2, pool.translate(slots + PAGE)), numbers)
    assert torch.equal(pool.sliding.get_key(2)[: 2 * PAGE], before)  # page 3 is unmapped


def test_each_side_has_a_host_tier_of_its_own(pool):
    tiers = HostTier(pool.full, size=2 * PAGE), HostTier(pool.sliding, size=PAGE)

    assert [tier.bytes() for tier in tiers] == [
        2 * PAGE * 2 * 2 * 2 * 16 * 2,
        PAGE * 2 * 2 * 16 * 2,
    ]


def test_the_sides_page_alike(anywhere):
    def side(page_size: int) -> MhaPool:
        return MhaPool(
            size=64,
            page_size=page_size,
            layer_ids=(page_size,),
            num_heads=1,
            head_dim=8,
            dtype=torch.bfloat16,
            storage=anywhere,
        )

    with pytest.raises(PoolError, match="page alike, not by 8 and 16"):
        SwaPool(side(8), side(16))
