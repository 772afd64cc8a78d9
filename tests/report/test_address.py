"""Addresses of tokens: the bytes that a pool's own write door changes, and numbers by hand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import product

import pytest
import torch

from kvplan.errors import InputError, PoolError
from kvplan.pools.base import KvPool, raw
from kvplan.pools.build import Pools, build
from kvplan.pools.compressed import CompressedPool
from kvplan.pools.dsa import DsaPool
from kvplan.pools.hybrid import HybridLinearPool
from kvplan.pools.nvfp4 import Nvfp4Pool
from kvplan.pools.request_ring import RequestRingPool
from kvplan.pools.sparse import SparsePool
from kvplan.pools.striped import InterleavedPool, StripedPool
from kvplan.pools.write_loc import KVWriteLoc
from kvplan.report.address import Spot, places
from kvplan.report.regions import Region
from kvplan.sizing.plan import Plan
from tests.pools.launches import HISPARSE, RINGED, SHARDED_LAUNCHES, UNIFIED, UNIFORM, plan_of
from tests.report.small_plans import small_plans

PATTERNS = (0x55, 0xAA)
Buffer = tuple[str, str, int | None]
NO_NATIVE_SCALES = "phi-3-mini-4k-instruct-lowbit-48"


def offsets(region: Region) -> set[int]:
    """Every byte of a region."""
    starts = [
        region.offset
        + sum(turn * stride for turn, (_, stride) in zip(turns, region.repeats, strict=True))
        for turns in product(*(range(count) for count, _ in region.repeats))
    ]
    return {start + byte for start in starts for byte in range(region.length)}


def planned_bytes(plan: Plan, spot: Spot, pools: tuple[str, ...]) -> dict[Buffer, set[int]]:
    """What the address names, buffer by buffer."""
    named: dict[Buffer, set[int]] = defaultdict(set)
    for place in places(plan, plan.stages[0], spot):
        if place.pool in pools:
            named[place.pool, place.buffer, place.layer] |= offsets(place.region)
    return dict(named)


def buffers(built: Pools) -> Iterator[tuple[Buffer, torch.Tensor]]:
    """Every tensor that owns bytes, flat."""
    for pool, entries in built.parts().items():
        for entry in entries:
            if not entry.is_view and entry.tensor.numel() and entry.name != "free_slots":
                layer = entry.layers[0] if len(entry.layers) == 1 else None
                yield (pool, entry.name, layer), raw(entry.tensor).view(-1).view(torch.uint8)


def changed_bytes(built: Pools, write: Callable[[], None]) -> dict[Buffer, set[int]]:
    """Which bytes a write sets, found over two fills of everything."""
    changed: dict[Buffer, set[int]] = defaultdict(set)
    for pattern in PATTERNS:
        for _, flat in buffers(built):
            flat.fill_(pattern)
        write()
        for buffer, flat in buffers(built):
            changed[buffer] |= set((flat != pattern).nonzero().flatten().tolist())
    return {buffer: found for buffer, found in changed.items() if found}


def last_row(built: Pools, buffer: Buffer) -> range:
    """The bytes of a buffer's last row."""
    pool, name, layer = buffer
    tensor = next(
        entry.tensor
        for entry in built.parts()[pool]
        if entry.name == name and entry.layers == (layer,)
    )
    return range(tensor.nbytes - tensor[-1].nbytes, tensor.nbytes)


def kv_of(built: Pools) -> KvPool:
    kv = built.kv
    return kv.full if isinstance(kv, HybridLinearPool) else kv


def write_layer(kv: KvPool, layer: int, spot: Spot) -> None:
    """One token through every door that a layer has."""
    torch.manual_seed(layer)
    loc = KVWriteLoc(torch.tensor([spot.slot]), swa_loc=window_slot(kv, spot))
    shapes = kv.row_shapes(layer)
    v = None if shapes.v is None else torch.randn(1, *shapes.v)
    kv.set_kv_buffer(layer, loc, torch.randn(1, *shapes.k), v)
    local = kv.local if isinstance(kv, StripedPool) else kv
    if isinstance(kv, InterleavedPool):
        loc = KVWriteLoc(kv.local_slots(loc.loc))
    if isinstance(local, DsaPool) and layer in local.index_keys.owners:
        local.set_index_keys(layer, loc, *keys(local.index_keys.head_dim))
    if isinstance(local, SparsePool) and any(layer in each.layer_ids for each in local.indexes):
        shapes = local.index_part(layer).row_shapes(layer)
        v = None if shapes.v is None else torch.randn(1, *shapes.v)
        local.set_index(layer, loc, torch.randn(1, *shapes.k), v)
    if isinstance(local, CompressedPool):
        write_compressed(local, layer, spot)
    if isinstance(local, Nvfp4Pool):
        fill(local, layer, loc.loc)


def window_slot(kv: KvPool, spot: Spot) -> torch.Tensor:
    """The sliding slot, or the row's own in its ring."""
    if not isinstance(kv, RequestRingPool):
        return torch.tensor([spot.sliding_slot or 0])
    return kv.ring_slots(torch.tensor([spot.row]), torch.tensor([spot.position]))


def fill(pool: Nvfp4Pool, layer: int, slots: torch.Tensor) -> None:
    """The workspace, where the recipe has one."""
    try:
        pool.fill_workspace(layer, slots)
    except PoolError:
        assert all("workspace" not in entry.name for entry in pool.tensors())


def write_compressed(pool: CompressedPool, layer: int, spot: Spot) -> None:
    """Latents, index keys and rings of a layer with a ratio."""
    try:
        ratio = pool.ratio_pool(layer)
    except PoolError:
        return
    loc = KVWriteLoc(torch.tensor([spot.slot]))
    pool.set_compressed(layer, loc, torch.randn(1, *ratio.latent.row_shapes(layer).k))
    if ratio.index_keys is not None:
        pool.set_index_keys(layer, loc, *keys(ratio.index_keys.head_dim))
    assert spot.row is not None
    assert spot.position is not None
    for ring in ratio.rings:
        if ratio.ratio == 4 and not isinstance(pool, RequestRingPool):
            slots = ring.slots_of_window(torch.tensor([spot.sliding_slot]), pool.page_size)
        else:
            slots = ring.slots_of_positions(torch.tensor([spot.row]), torch.tensor([spot.position]))
        ring.write(layer, slots, torch.randn(1, 2 * ring.width))


def keys(head_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(1, head_dim).to(torch.float8_e4m3fn), torch.randn(1, head_dim // 128)


def spot_of(plan: Plan, built: Pools) -> Spot:
    """A token in the middle of a page that ends a group of every ratio, on this rank."""
    page_size, ranks = kv_of(built).page_size, plan.resolved.widths.attn_dcp
    slot = page_size * 2 + max(0, page_size // 2 - 1)
    slot -= slot % ranks
    slot += -(slot // page_size) % plan.resolved.kv_shards * page_size  # a page of the first rank
    sliding = page_size + slot % page_size
    return Spot(slot, sliding, row=1, position=5, state_slot=2)


def write_drafts(plan: Plan, built: Pools, spot: Spot) -> None:
    """The draft's own layers: by the target's slots, or by the sliding ones."""
    pool, two = plan.stages[0].pool, plan.stages[0].pool.sliding
    for draft in built.drafts:
        slides = pool.compressed is not None or (two and draft.size == two.sliding_tokens)
        slot = torch.tensor([spot.sliding_slot if slides else spot.slot])
        for layer in draft.layer_ids:
            shapes = draft.row_shapes(layer)
            v = None if shapes.v is None else torch.randn(1, *shapes.v)
            if isinstance(built.kv, RequestRingPool):
                slot = window_slot(built.kv, spot)
            draft.set_kv_buffer(layer, KVWriteLoc(slot), torch.randn(1, *shapes.k), v)
            if isinstance(draft, Nvfp4Pool):
                fill(draft, layer, slot)
            local, slots = draft, slot
            if isinstance(draft, InterleavedPool):
                local, slots = draft.local, draft.local_slots(slot)
            if isinstance(local, DsaPool):
                local.set_index_keys(layer, KVWriteLoc(slots), *keys(local.index_keys.head_dim))


KV_POOLS = ("kv", "full", "sliding", "index", "c4", "c128", "draft KV")


def test_the_address_of_a_token_is_what_a_write_changes(shared):
    """Every byte, for a launch of each family: rows, tiles, native scales, packed pages, rings."""
    torch.set_num_threads(1)
    families = small_plans(shared / "golden")
    for name, plan in families.items():
        if name != NO_NATIVE_SCALES:
            check_address(name, build(plan, "cpu"))
    assert len(families) >= 60


@pytest.mark.parametrize("name", [*SHARDED_LAUNCHES, *RINGED, *UNIFORM])
def test_so_it_is_for_launches_without_a_record(name):
    check_address(name, build(plan_of(name, capped=True), "cpu", kv_scale=True))


def check_address(name: str, built: Pools) -> None:
    """What is written for one token is what its address names."""
    plan = built.plan
    kv, spot = kv_of(built), spot_of(plan, built)
    layers = {kv.layer_ids[0], kv.layer_ids[len(kv.layer_ids) // 2], kv.layer_ids[-1]}

    def write(kv: KvPool = kv, spot: Spot = spot) -> None:
        for layer in layers:
            write_layer(kv, layer, spot)
        write_drafts(plan, built, spot)

    changed = changed_bytes(built, write)
    for each in [each for each in changed if each[1] in {"state", "index_state"}]:
        changed[each] -= set(last_row(built, each))  # a ring keeps its last slot blank
    named = planned_bytes(plan, spot, KV_POOLS)
    named = {
        each: found
        for each, found in named.items()
        if each[0] == "draft KV" or each[2] in {None, *layers}
    }

    assert changed == named, name


@pytest.mark.parametrize("name", UNIFIED)
def test_a_virtual_slot_has_no_address(name):
    plan = plan_of(name)
    with pytest.raises(InputError, match="slot 100 has no fixed bytes"):
        list(places(plan, plan.stages[0], Spot(100)))


@pytest.mark.parametrize("name", HISPARSE)
def test_what_is_swapped_has_no_address(name):
    """Index keys and dense layers have one for every token."""
    plan = plan_of(name)
    found = {(each.pool, each.buffer) for each in places(plan, plan.stages[0], Spot(100))}

    assert found
    assert not found & {("kv", "latent"), ("kv", "k"), ("kv", "v"), ("c4", "latent")}


def test_a_state_slot_is_addressed_in_every_linear_layer(shared):
    hybrids = [
        (name, plan)
        for name, plan in small_plans(shared / "golden").items()
        if plan.stages[0].stage.model.linear is not None
    ]
    for name, plan in hybrids:
        built = build(plan, "cpu")
        state = built.state
        assert state is not None

        def write(state=state) -> None:
            for layer in state.layer_ids:
                for part in (*state.layer_state(layer).conv, state.layer_state(layer).temporal):
                    part[2] = 7

        changed = changed_bytes(built, write)
        named: dict[Buffer, set[int]] = defaultdict(set)
        for (pool, buffer, _), found in planned_bytes(
            plan, Spot(1, state_slot=2), ("state",)
        ).items():
            named[pool, buffer, None] |= found

        # layers of one tensor: the built tensor names them all at once
        merged: dict[Buffer, set[int]] = defaultdict(set)
        for (pool, buffer, _), found in changed.items():
            merged[pool, buffer, None] |= found
        assert merged == named, name
    assert len(hybrids) >= 5
