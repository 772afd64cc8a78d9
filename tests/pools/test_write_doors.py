"""Every kind of pool through its write door and back."""

from __future__ import annotations

import pytest
import torch

from kvplan.errors import PoolError
from kvplan.pools.base import KvPool
from kvplan.pools.marks import mark, unmark
from kvplan.pools.mha import MhaPool
from kvplan.pools.storage import open_storage
from kvplan.pools.write_loc import KVWriteLoc
from tests.pools.kinds import KINDS, LAYERS, SIZE, mha


def slots_on(pool: KvPool, *slots: int) -> torch.Tensor:
    return torch.tensor(slots, device=pool.storage.device)


def write_marks(pool: KvPool, layer_id: int, slots: torch.Tensor, numbers: torch.Tensor) -> None:
    shapes = pool.row_shapes(layer_id)
    v = None if shapes.v is None else mark(numbers, shapes.v)
    pool.set_kv_buffer(layer_id, KVWriteLoc(slots), mark(numbers, shapes.k), v)


def read_marks(pool: KvPool, layer_id: int, slots: torch.Tensor) -> list[torch.Tensor]:
    return [unmark(side) for side in pool.read(layer_id, slots) if side is not None]


def snapshot(pool: KvPool) -> list[torch.Tensor]:
    return [entry.tensor.clone().view(torch.uint8) for entry in pool.tensors()]


def test_what_is_written_is_read_back_at_every_slot(pool):
    slots = torch.randperm(SIZE, device=pool.storage.device) + pool.page_size
    numbers = torch.arange(SIZE, device=pool.storage.device)
    for layer_id in LAYERS:
        write_marks(pool, layer_id, slots, numbers + 1000 * layer_id)

    for layer_id in LAYERS:
        for side in read_marks(pool, layer_id, slots):
            assert torch.equal(side, numbers + 1000 * layer_id)


def test_slots_may_be_int32(pool):
    slots = slots_on(pool, 300, 5).int()
    write_marks(pool, LAYERS[0], slots, slots.long())

    assert all(torch.equal(side, slots.long()) for side in read_marks(pool, LAYERS[0], slots))


def test_writes_to_the_padding_page_touch_nothing_else(pool):
    owned = torch.arange(pool.page_size, pool.page_size + 40, device=pool.storage.device)
    write_marks(pool, LAYERS[0], owned, owned)
    padding = torch.zeros(9, dtype=torch.long, device=pool.storage.device)

    write_marks(pool, LAYERS[0], padding, padding + 77)

    assert all(torch.equal(side, owned) for side in read_marks(pool, LAYERS[0], owned))


def test_an_empty_batch_writes_nothing(pool):
    before = snapshot(pool)
    nothing = torch.zeros(0, dtype=torch.long, device=pool.storage.device)

    write_marks(pool, LAYERS[0], nothing, nothing)

    assert all(map(torch.equal, before, snapshot(pool)))


def test_views_share_the_storage(pool):
    storages = {entry.tensor.untyped_storage().data_ptr() for entry in pool.tensors()}

    assert pool.get_key(LAYERS[1]).untyped_storage().data_ptr() in storages
    if pool.row_shapes(LAYERS[1]).v is not None:
        k, v = pool.get_kv(LAYERS[1])
        assert v.untyped_storage().data_ptr() in storages
        assert len(k) == len(v) == SIZE + pool.page_size


def test_bytes_are_the_sum_of_the_tensors_and_the_same_on_meta(request, pool):
    kind = request.node.callspec.params["pool"]
    total = sum(
        entry.tensor.numel() * entry.tensor.element_size()
        for entry in pool.tensors()
        if not entry.is_view
    )

    assert pool.bytes() == total == KINDS[kind](open_storage("meta")).bytes()


def test_each_refusal_leaves_the_pool_as_it_was(pool):
    shapes = pool.row_shapes(LAYERS[0])
    k = mark(torch.arange(2, device=pool.storage.device), shapes.k)
    v = None if shapes.v is None else mark(torch.arange(2, device=pool.storage.device), shapes.v)
    loc = KVWriteLoc(slots_on(pool, pool.page_size, pool.page_size + 1))
    before = snapshot(pool)

    for problem, write in {
        "layer 3 has no KV": lambda: pool.set_kv_buffer(3, loc, k, v),
        "k is ": lambda: pool.set_kv_buffer(LAYERS[0], loc, k[..., :-1], v),
        "k is (1": lambda: pool.set_kv_buffer(LAYERS[0], loc, k[:1], v),
        "v is ": lambda: pool.set_kv_buffer(LAYERS[0], loc, k, k if v is None else None),
    }.items():
        with pytest.raises(PoolError, match=problem.replace("(", r"\(")):
            write()
    assert all(map(torch.equal, before, snapshot(pool)))


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("slot", [-1, -SIZE, 10_000])
def test_slots_outside_the_pool_are_named(storage, kind, slot):
    pool = KINDS[kind](storage)
    before = snapshot(pool)
    slots = torch.tensor([pool.page_size, slot])

    with pytest.raises(PoolError, match=f"names slot {slot}"):
        write_marks(pool, LAYERS[0], slots, torch.tensor([1, 2]))
    with pytest.raises(PoolError, match=f"names slot {slot}"):
        pool.read(LAYERS[0], slots)

    assert all(map(torch.equal, before, snapshot(pool)))


def test_a_bare_tensor_is_refused_with_the_way_out(storage):
    pool = mha(torch.bfloat16)(storage)

    with pytest.raises(PoolError, match="takes a KVWriteLoc") as refusal:
        pool.set_kv_buffer(LAYERS[0], *[torch.tensor([1])] * 3)  # type: ignore[arg-type]
    assert "KVWriteLoc(out_cache_loc)" in str(refusal.value.hint)


@pytest.mark.parametrize(
    ("size", "page_size", "problem"),
    [
        (100, 16, "100 tokens are not whole pages of 16"),
        (-16, 16, "-16 tokens are not whole pages"),
        (16, 0, "the page size must be at least 1, it is 0"),
    ],
)
def test_capacities_are_whole_pages(storage, size, page_size, problem):
    with pytest.raises(PoolError, match=problem):
        MhaPool(
            size=size,
            page_size=page_size,
            layer_ids=(0,),
            num_heads=1,
            head_dim=8,
            dtype=torch.bfloat16,
            storage=storage,
        )


def test_fp8_is_stored_as_bytes_and_read_through_a_view(storage):
    pool = mha(torch.float8_e4m3fn)(storage)
    assert isinstance(pool, MhaPool)

    assert (pool.dtype, pool.store_dtype) == (torch.float8_e4m3fn, torch.uint8)
    assert {entry.tensor.dtype for entry in pool.tensors()} == {torch.uint8}
    assert pool.get_key(7).dtype == torch.float8_e4m3fn


def test_fp4_without_a_recipe_keeps_a_code_a_byte(storage):
    pool = mha(torch.float4_e2m1fn_x2)(storage)
    k = torch.tensor([0.0, 0.5, -6.0, 2.6]).repeat(1, 2, 8)
    slots = torch.tensor([16])

    pool.set_kv_buffer(7, KVWriteLoc(slots), k, k[..., :16])

    assert pool.get_key(7).view(torch.uint8)[16, 0, :4].tolist() == [0, 1, 15, 5]
    assert pool.read(7, slots)[0][0, 1, :4].tolist() == [0.0, 0.5, -6.0, 3.0]
    with pytest.raises(PoolError, match="takes values, not packed FP4"):
        pool.set_kv_buffer(
            7,
            KVWriteLoc(slots),
            *[each.to(torch.uint8).view(torch.float4_e2m1fn_x2) for each in (k, k[..., :16])],
        )


def test_a_latent_pool_reads_its_value_from_the_first_columns(storage):
    pool = KINDS["mla-fp8"](storage)

    assert pool.get_value(7).shape == (SIZE + 32, 1, 512)
    assert pool.get_value(7).data_ptr() == pool.get_key(7).data_ptr()


def test_a_pool_of_physical_slots_refuses_an_unmarked_loc(storage):
    pool = MhaPool(
        size=16,
        page_size=1,
        layer_ids=(0,),
        num_heads=1,
        head_dim=8,
        dtype=torch.float32,
        storage=storage,
        requires_physical=True,
    )
    k = torch.ones(1, 1, 8)
    loc = torch.tensor([3])

    with pytest.raises(PoolError, match="not marked physical") as refusal:
        pool.set_kv_buffer(0, KVWriteLoc(loc), k, k)
    assert "KVWriteLoc(loc, physical=True)" in str(refusal.value.hint)
    pool.set_kv_buffer(0, KVWriteLoc(loc, physical=True), k, k)
    assert torch.equal(pool.read(0, loc)[0], k)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_door_and_page_copies_read_no_value_from_the_device(kind):
    """On meta there are no values: whatever needed one, and so a device sync, would fail."""
    pool = KINDS[kind](open_storage("meta"))
    shapes = pool.row_shapes(LAYERS[1])
    slots = torch.empty(3, dtype=torch.long, device="meta")
    k = torch.empty((3, *shapes.k), device="meta")
    v = None if shapes.v is None else torch.empty((3, *shapes.v), device="meta")

    pool.set_kv_buffer(LAYERS[1], KVWriteLoc(slots), k, v)
    pool.copy_pages(slots, slots)

    assert all(entry.tensor.device.type == "meta" for entry in pool.tensors())
