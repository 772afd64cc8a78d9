"""Sub-pools in one byte buffer, under the allocator that moves their pages."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from kvplan.allocators.band import Move
from kvplan.allocators.state_band import StateBand
from kvplan.allocators.unified import UnifiedAllocator
from kvplan.errors import PoolError
from kvplan.pools.host import HostTier
from kvplan.pools.hybrid_rows import HybridRequestRows, TrackingPlan
from kvplan.pools.marks import mark, unmark
from kvplan.pools.recurrent import StatePool
from kvplan.pools.slot_band import SlotBand
from kvplan.pools.storage import Storage, open_storage
from kvplan.pools.token_major import TokenMajorPool
from kvplan.pools.unified import UnifiedPool
from kvplan.pools.write_loc import KVWriteLoc

PAGE = 4
STATE_BYTES = 2 * (6 * 3 * 2 + 4 * 4)  # two layers of conv windows in bf16 and float32 state


def token_major(
    buffer: torch.Tensor, layer_ids: tuple[int, ...], heads: int, storage: Storage
) -> TokenMajorPool:
    return TokenMajorPool(
        buffer,
        page_size=PAGE,
        layer_ids=layer_ids,
        rows={"k": (heads, 16), "v": (heads, 8)},
        dtype=torch.float8_e4m3fn,
        storage=storage,
    )


def unified_pool(total_bytes: int, storage: Storage) -> UnifiedPool:
    buffer = storage.zeros((total_bytes,), torch.uint8)
    band = SlotBand(buffer, STATE_BYTES)
    state = StatePool(
        slots=band.num_slots - 1,
        layer_ids=(1, 3),
        conv_shapes=[(6, 3)],
        temporal_shape=(1, 2, 2),
        conv_dtype=torch.bfloat16,
        temporal_dtype=torch.float32,
        storage=storage,
        band=band,
    )
    full = token_major(buffer, (0, 4), 2, storage)
    return UnifiedPool(buffer, full, sliding=token_major(buffer, (2,), 1, storage), state=state)


@pytest.fixture
def pool(anywhere) -> UnifiedPool:
    return unified_pool(12_345, anywhere)


def write(pool: UnifiedPool, layer_id: int, slots: torch.Tensor, numbers: torch.Tensor) -> None:
    shapes = pool.row_shapes(layer_id)
    assert shapes.v is not None
    loc = KVWriteLoc(slots, swa_loc=slots, physical=True)
    pool.set_kv_buffer(layer_id, loc, mark(numbers, shapes.k), mark(numbers, shapes.v))


def read(pool: UnifiedPool, layer_id: int, slots: torch.Tensor) -> list[int]:
    k, v = pool.read(layer_id, slots)
    assert v is not None
    assert torch.equal(unmark(k), unmark(v))
    return unmark(k).tolist()


def test_all_tensors_are_views_of_the_one_buffer(pool):
    parts = pool.parts()

    assert pool.bytes() == len(pool.buffer) == 12_345
    assert {name: len(entries) for name, entries in parts.items()} == {
        "unified": 1,
        "full": 4,
        "sliding": 2,
        "state": 2,
    }
    address = pool.buffer.untyped_storage().data_ptr()
    assert {each.tensor.untyped_storage().data_ptr() for each in pool.tensors()} == {address}


@pytest.mark.parametrize("slot", [PAGE, 3 * PAGE + 1])
def test_a_token_of_all_layers_is_one_run_of_bytes(pool, slot):
    """Two layers of 2 heads x (16 + 8) bytes; the sliding layer's 24 bytes are padded to 32."""
    slots = torch.tensor([slot], device=pool.storage.device)
    for layer_id in (0, 4):
        write(pool, layer_id, slots, slots)

    written = pool.buffer.nonzero().flatten()
    assert (pool.full.entry_bytes, pool.sliding.entry_bytes) == (96, 32)
    assert slot * 96 <= written.min() <= written.max() < (slot + 1) * 96


@pytest.mark.parametrize(("layer", "at"), [(0, 0), (4, 48)])
def test_an_entry_holds_k_and_v_layer_by_layer(pool, layer, at):
    assert [each.offset_bytes for each in pool.places(layer, 9)] == [9 * 96 + at, 9 * 96 + at + 32]


def test_latents_lie_in_a_shared_buffer_too(anywhere):
    buffer = anywhere.zeros((4_000,), torch.uint8)
    pool = TokenMajorPool(
        buffer,
        page_size=PAGE,
        layer_ids=(0, 2),
        rows={"latent": (1, 24)},
        value_width=16,
        dtype=torch.bfloat16,
        storage=anywhere,
    )
    slots = torch.tensor([7], device=anywhere.device)
    for layer_id in (0, 2):
        loc = KVWriteLoc(slots, physical=True)
        pool.set_kv_buffer(layer_id, loc, mark(slots + layer_id, (1, 24)))

    assert pool.entry_bytes == 96
    assert [unmark(pool.read(layer_id, slots)[0]).item() for layer_id in (0, 2)] == [7, 9]
    assert pool.row_shapes(0) == ((1, 24), None)
    assert pool.get_value(2).shape == (pool.num_slots, 1, 16)


def test_unmarked_slots_are_refused(pool):
    slots = torch.tensor([5], device=pool.storage.device)
    k, v = torch.ones(1, 2, 16), torch.ones(1, 2, 8)

    with pytest.raises(PoolError, match="not marked physical") as refusal:
        pool.set_kv_buffer(0, KVWriteLoc(slots), k, v)
    assert "physical=True" in str(refusal.value.hint)
    assert not pool.buffer.any()


def test_host_tiers_and_copies_go_by_sub_pool(pool):
    with pytest.raises(PoolError, match="by sub-pool"):
        HostTier(pool, size=PAGE)
    with pytest.raises(PoolError, match="bands of their own"):
        pool.copy_pages(torch.tensor([1]), torch.tensor([2]))

    # without the padding of entries: a layer travels alone
    assert HostTier(pool.sliding, size=2 * PAGE).bytes() == 2 * PAGE * 24


def test_what_does_not_fit_a_buffer_is_refused(storage):
    with pytest.raises(PoolError, match="a buffer of 383 bytes holds no page of 384 bytes"):
        token_major(storage.zeros((383,), torch.uint8), (0, 4), 2, storage)
    band = SlotBand(storage.zeros((100,), torch.uint8), 10)
    with pytest.raises(PoolError, match="does not fit 10 slots of 10 bytes, 0 of them used"):
        band.zeros((1, 9, 2), torch.uint8)
    with pytest.raises(PoolError, match=r"leave torch\.float32 unaligned"):
        band.zeros((1, 10, 2), torch.float32)


class Traffic:
    """Requests and states over a unified pool, with what each of them should read."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.pool = unified_pool(9_000, open_storage("cpu"))
        assert self.pool.sliding is not None
        self.moved: set[str] = set()
        self.allocator = UnifiedAllocator(
            len(self.pool.buffer),
            PAGE,
            full_token_bytes=self.pool.full.page_bytes // PAGE,
            swa_token_bytes=self.pool.sliding.page_bytes // PAGE,
            state_slot_bytes=STATE_BYTES,
            move=self.move,
        )
        self.requests: list[torch.Tensor] = []
        self.states: list[tuple[torch.Tensor, int]] = []

    def move(self, moved: Move) -> None:
        self.moved.add(moved.band)
        self.pool.move(moved)

    def step(self, number: int) -> None:
        match self.choose.choice(["alloc", "alloc", "free", "window", "state", "drop"]):
            case "alloc":
                self.alloc()
            case "free" if self.requests:
                self.allocator.free(self.any_of(self.requests, keep=False))
            case "window" if self.requests:
                slots = self.any_of(self.requests, keep=True)
                if bool((self.allocator.to_swa(slots[:1]) >= PAGE).all()):
                    self.allocator.free_swa(slots[:PAGE])
            case "state":
                self.take_state(number % 250)
            case "drop" if self.states:
                self.slots.free(self.any_of(self.states, keep=False)[0])

    @property
    def slots(self) -> StateBand:
        assert self.allocator.state_slots is not None
        return self.allocator.state_slots

    def any_of(self, held: list[Any], *, keep: bool) -> Any:
        at = self.choose.randrange(len(held))
        return held[at] if keep else held.pop(at)

    def alloc(self) -> None:
        slots = self.allocator.alloc(self.choose.randint(1, 3) * PAGE)
        if slots is None:
            return
        write(self.pool, 0, self.allocator.to_full(slots), slots)
        write(self.pool, 4, self.allocator.to_full(slots), slots + 7)
        write(self.pool, 2, self.allocator.to_swa(slots), slots + 1)
        self.requests.append(slots)

    def take_state(self, number: int) -> None:
        slot = self.slots.alloc(1)
        if slot is None:
            return
        for part in self.state_parts():
            part[:, self.slots.to_physical(slot)] = number
        self.states.append((slot, number))

    def state_parts(self) -> list[torch.Tensor]:
        assert self.pool.state is not None
        return [part.tensor for part in self.pool.state.slot_tensors()]

    def check(self) -> None:
        for slots in self.requests:
            full, sliding = self.allocator.to_full(slots), self.allocator.to_swa(slots)
            live = sliding >= PAGE
            assert read(self.pool, 0, full) == slots.tolist()
            assert read(self.pool, 4, full) == (slots + 7).tolist()
            assert read(self.pool, 2, sliding[live]) == (slots[live] + 1).tolist()
        for slot, number in self.states:
            for part in self.state_parts():
                assert part[:, self.slots.to_physical(slot)].unique().tolist() == [number]


@pytest.mark.parametrize("seed", range(3))
def test_no_token_or_state_is_lost_when_pages_move(seed):
    """Random requests over all three bands; compactions move pages under them."""
    traffic = Traffic(seed)
    for number in range(300):
        traffic.step(number)
        if number % 10 == 0:
            traffic.check()

    traffic.check()
    assert traffic.moved == {"full", "swa", "state"}
    assert traffic.allocator.verify_accounting() == []


@dataclass
class Holder:
    row: int | None = None
    allocated_tokens: int = 0
    state_slot: Any = None
    tracking: Any = None


def test_rows_blank_states_where_they_lie_in_the_shared_buffer():
    traffic = Traffic(seed=3)
    pool, allocator = traffic.pool, traffic.allocator
    assert pool.state is not None
    assert allocator.state_slots is not None
    rows = HybridRequestRows(
        4,
        64,
        storage=pool.storage,
        states=pool.state,
        tracking=TrackingPlan.of(extra_buffer=False, overlap=True, lazy=False),
        state_slots=allocator.state_slots,
    )
    kept = allocator.alloc(4 * PAGE)
    assert kept is not None
    holders = [Holder(), Holder()]
    assert rows.alloc(holders) is not None
    write(pool, 0, allocator.to_full(kept), kept)
    held = torch.cat([holder.state_slot for holder in holders])
    for part in traffic.state_parts():
        part[:, allocator.state_slots.to_physical(held)] = 7

    rows.clear()
    again = Holder()
    assert rows.alloc([again]) is not None

    where = allocator.state_slots.to_physical(again.state_slot)
    assert not any(bool(part[:, where].any()) for part in traffic.state_parts())
    assert read(pool, 0, allocator.to_full(kept)) == kept.tolist()
