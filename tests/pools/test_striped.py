"""One logical space over several ranks: every token on exactly one of them."""

from __future__ import annotations

import pytest
import torch

from kvplan.errors import PoolError
from kvplan.pools.marks import mark, unmark
from kvplan.pools.mha import MhaPool
from kvplan.pools.storage import Storage
from kvplan.pools.striped import ContextStripedPool, InterleavedPool, StripedPool
from kvplan.pools.write_loc import KVWriteLoc

RANKS, PAGE, SIZE = 3, 4, 16


def stripe(kind: type[InterleavedPool] | type[ContextStripedPool], rank: int, storage: Storage):
    local = MhaPool(
        size=SIZE,
        page_size=PAGE,
        layer_ids=(0,),
        num_heads=1,
        head_dim=16,
        dtype=torch.bfloat16,
        storage=storage,
        requires_physical=True,
    )
    return kind(local, rank=rank, num_ranks=RANKS)


@pytest.fixture(params=[InterleavedPool, ContextStripedPool])
def ranks(request, anywhere) -> list[StripedPool]:
    return [stripe(request.param, rank, anywhere) for rank in range(RANKS)]


def test_capacity_and_slots_are_those_of_all_ranks(ranks):
    assert {pool.size for pool in ranks} == {RANKS * SIZE}
    assert {pool.num_slots for pool in ranks} == {RANKS * (SIZE + PAGE)}


def test_every_token_is_kept_by_exactly_one_rank(ranks):
    device = ranks[0].storage.device
    slots = torch.arange(RANKS * PAGE, ranks[0].num_slots, device=device)
    for pool in ranks:
        pool.set_kv_buffer(0, KVWriteLoc(slots), mark(slots, (1, 16)), mark(slots, (1, 16)))

    seen = []
    for pool in ranks:
        mine = slots[pool.owners(slots) == pool.rank]
        assert torch.equal(unmark(pool.read(0, mine)[0]), mine)
        assert torch.equal(unmark(pool.local.read(0, pool.local_slots(mine))[1]), mine)
        seen += mine.tolist()
    assert sorted(seen) == slots.tolist()


def test_foreign_tokens_land_in_the_padding_page(ranks):
    pool = ranks[1]
    device = pool.storage.device
    slots = torch.arange(RANKS * PAGE, pool.num_slots, device=device)
    foreign = slots[pool.owners(slots) != 1]

    pool.set_kv_buffer(0, KVWriteLoc(foreign), mark(foreign, (1, 16)), mark(foreign, (1, 16)))

    assert not pool.local.get_key(0)[PAGE:].any()


def test_reading_a_foreign_slot_names_its_rank(storage):
    pool = stripe(InterleavedPool, 1, storage)

    with pytest.raises(PoolError, match="slot 20 lies on rank 2, this is rank 1"):
        pool.read(0, torch.tensor([16, 20]))


def test_a_slot_is_found_on_its_own_rank(storage):
    pool = stripe(InterleavedPool, 1, storage)

    assert pool.places(0, 4 * PAGE + 2) == pool.local.places(0, PAGE + 2)
    with pytest.raises(PoolError, match="slot 20 lies on rank 2"):
        pool.places(0, 20)


def test_interleaved_pages_copy_within_their_rank(anywhere):
    device = anywhere.device
    pool = stripe(InterleavedPool, 1, anywhere)
    slots = torch.arange(4 * PAGE, 5 * PAGE, device=device)  # logical page 4: rank 1, page 1
    pool.set_kv_buffer(0, KVWriteLoc(slots), mark(slots, (1, 16)), mark(slots, (1, 16)))

    pool.copy_pages(torch.tensor([4, 5], device=device), torch.tensor([10, 8], device=device))

    assert torch.equal(unmark(pool.read(0, slots + 6 * PAGE)[0]), slots)
    if device.type == "cpu":
        with pytest.raises(PoolError, match="crosses ranks"):
            pool.copy_pages(torch.tensor([4]), torch.tensor([5]))


def test_a_context_striped_page_copies_on_every_rank(anywhere):
    device = anywhere.device
    for rank in range(RANKS):
        pool = stripe(ContextStripedPool, rank, anywhere)
        slots = torch.arange(RANKS * PAGE, 2 * RANKS * PAGE, device=device)  # logical page 1
        pool.set_kv_buffer(0, KVWriteLoc(slots), mark(slots, (1, 16)), mark(slots, (1, 16)))

        pool.copy_pages(torch.tensor([1], device=device), torch.tensor([3], device=device))

        moved = slots + 2 * RANKS * PAGE
        mine = moved[pool.owners(moved) == rank]
        assert pool.page_size == RANKS * PAGE
        assert torch.equal(unmark(pool.read(0, mine)[0]), mine - 2 * RANKS * PAGE)


def test_ranks_and_slots_that_do_not_exist_are_refused(storage):
    with pytest.raises(PoolError, match="there is no rank 3 of 3"):
        stripe(InterleavedPool, 3, storage)
    k = mark(torch.tensor([1]), (1, 16))
    with pytest.raises(PoolError, match="loc names slot 60"):
        stripe(InterleavedPool, 0, storage).set_kv_buffer(0, KVWriteLoc(torch.tensor([60])), k, k)
