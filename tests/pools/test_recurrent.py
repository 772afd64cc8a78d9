"""State slots: what travels with them, and that no owner sees the one before."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kvplan.errors import PoolError
from kvplan.pools.base import page_rows
from kvplan.pools.host import HostTier
from kvplan.pools.recurrent import StatePool
from kvplan.pools.siblings import NgramState, ShortConvState
from kvplan.pools.storage import open_storage
from tests.pools.states import (
    DRAFTS,
    EOS,
    LAYERS,
    SLOTS,
    blank,
    contents,
    fill,
    state_pool,
    with_siblings,
)


def tensor_shapes(pool: StatePool) -> dict[str, tuple[tuple[int, ...], bool]]:
    return {entry.name: (tuple(entry.tensor.shape), entry.is_view) for entry in pool.tensors()}


def test_shapes_have_a_padding_slot_and_a_padding_row(storage):
    assert tensor_shapes(state_pool(storage)) == {
        "conv": ((3, 7, 10, 3), False),
        "temporal": ((3, 7, 2, 4, 4), False),
        "snapshot_conv": ((3, 4, 10, 6), False),
        "snapshot_conv_window": ((3, 4, 4, 10, 3), True),
        "snapshot_temporal": ((3, 4, 4, 2, 4, 4), False),
    }
    assert tensor_shapes(state_pool(storage, dedup_windows=False))["snapshot_conv"] == (
        (3, 4, 4, 10, 3),
        False,
    )
    assert set(tensor_shapes(state_pool(storage, draft_tokens=0))) == {"conv", "temporal"}


def test_views_own_no_bytes(storage):
    pool = state_pool(storage)

    conv, temporal = 3 * 7 * 30 * 2, 3 * 7 * 32 * 4
    assert pool.bytes() == conv + temporal + 3 * 4 * 60 * 2 + 3 * 4 * 4 * 32 * 4


def test_layers_without_conv_or_temporal_state_are_served(storage):
    lightning = state_pool(storage, conv_shapes=[(0, 0)], draft_tokens=0)
    short_conv = state_pool(storage, temporal_shape=(1, 8, 0), draft_tokens=0)
    for pool in (lightning, short_conv):
        pool.reset_slots(torch.tensor([1, 2]))
        pool.copy_slots(torch.tensor([1]), torch.tensor([2]))
        pool.load_slots(pool.save_slots(torch.tensor([1])), torch.tensor([3]))
        HostTier(pool, size=2).back_up(2, torch.tensor([1]), torch.tensor([0]))

    assert lightning.layer_state(5).conv[0].shape == (7, 0, 0)
    assert [each.name for each in short_conv.layer_buffers(5)] == ["conv"]


def test_overlapping_windows_hold_what_dense_ones_hold(anywhere):
    """A chain of draft tokens shifts one column in a step; both layouts must commit the same."""
    device = anywhere.device
    columns = torch.arange(DRAFTS + 2, dtype=torch.bfloat16, device=device).expand(10, -1)
    committed = []
    for dedup in (True, False):
        pool = state_pool(anywhere, dedup_windows=dedup)
        for layer_id in LAYERS:
            snapshots = pool.snapshots(layer_id)
            for step in range(DRAFTS):
                snapshots.conv[0][1, step] = columns[:, step : step + 3] + layer_id
                snapshots.temporal[1, step] = step + 1
        pool.commit_snapshots(
            torch.tensor([1], device=device),
            torch.tensor([2], device=device),
            torch.tensor([4], device=device),
        )
        committed.append([pool.layer_state(layer_id) for layer_id in LAYERS])

    for layer_id, overlapping, dense in zip(LAYERS, *committed, strict=True):
        assert torch.equal(overlapping.conv[0], dense.conv[0])
        assert overlapping.conv[0][4, 0].tolist() == [2 + layer_id, 3 + layer_id, 4 + layer_id]
        assert set(overlapping.temporal[4].flatten().tolist()) == {3.0}


def test_a_commit_takes_the_siblings_snapshots(storage):
    pool = with_siblings(storage)
    for part in pool.slot_tensors():
        assert part.snapshots is not None
        part.snapshots.fill_(0)
        part.snapshots.select(part.slot_axis, 2).select(part.slot_axis, 3).fill_(9)

    pool.commit_snapshots(torch.tensor([2]), torch.tensor([3]), torch.tensor([5]))

    assert contents(pool, 5) == [{9.0}] * 4


def test_snapshots_are_refused_where_none_are_kept(storage):
    with pytest.raises(PoolError, match="keeps no snapshots"):
        state_pool(storage, draft_tokens=0).snapshots(2)


def test_a_reset_blanks_every_sibling(anywhere):
    pool = with_siblings(anywhere)
    for slot in range(SLOTS + 1):
        fill(pool, slot, slot + 1)

    pool.reset_slots(torch.tensor([2, 6], device=anywhere.device))

    assert contents(pool, 2) == contents(pool, 6) == blank()
    assert contents(pool, 3) == [{4.0}] * 4


def test_a_copy_takes_every_sibling(anywhere):
    pool = with_siblings(anywhere)
    fill(pool, 1, 7)
    fill(pool, 3, 8)

    pool.copy_slots(
        torch.tensor([1, 3], device=anywhere.device), torch.tensor([2, 4], device=anywhere.device)
    )

    assert contents(pool, 2) == [{7.0}] * 4
    assert contents(pool, 4) == [{8.0}] * 4


def test_a_host_round_trip_is_bit_for_bit_siblings_included(anywhere):
    pool = with_siblings(anywhere)
    for part in pool.slot_tensors():
        part.tensor.view(torch.uint8).random_(0, 256)
    wanted = [
        part.tensor.select(part.slot_axis, 2).contiguous().view(torch.uint8).clone()
        for part in pool.slot_tensors()
    ]
    image = pool.save_slots(torch.tensor([2], device=anywhere.device))
    pool.reset_slots(torch.arange(SLOTS + 1, device=anywhere.device))

    pool.load_slots(image, torch.tensor([5], device=anywhere.device))

    for part, bytes_before in zip(pool.slot_tensors(), wanted, strict=True):
        now = part.tensor.select(part.slot_axis, 5).contiguous().view(torch.uint8)
        assert torch.equal(now, bytes_before)
    assert {saved.device.type for saved in image.parts} == {"cpu"}


def test_the_host_tier_carries_siblings_with_the_first_layer(storage):
    pool = with_siblings(storage)
    tier = HostTier(pool, size=4)
    fill(pool, 3, 5)
    for layer_id in LAYERS:
        tier.back_up(layer_id, torch.tensor([3]), torch.tensor([1]))
    pool.reset_slots(torch.arange(SLOTS + 1))

    for layer_id in LAYERS:
        tier.restore(layer_id, torch.tensor([1]), torch.tensor([6]))

    assert contents(pool, 6) == [{5.0}] * 4
    assert contents(pool, 5) == blank()
    names = [buffer.name for buffer in pool.layer_buffers(LAYERS[0])]
    assert names == ["conv", "temporal", "short_conv", "short_conv", "ngram"]
    assert all(page_rows(buffer).shape[:2] == (7, 1) for buffer in pool.layer_buffers(LAYERS[0]))


def test_a_sibling_of_another_size_is_refused(storage):
    with pytest.raises(PoolError, match="ngram has 5 slots, the state pool has 7"):
        state_pool(storage).register(
            NgramState(slots=4, context_len=2, eos_token_id=0, storage=storage)
        )


def test_contexts_are_set_and_read_by_slot(storage):
    ngram = NgramState(slots=4, context_len=2, eos_token_id=EOS, storage=storage)
    ngram.set_context(torch.tensor([3, 1]), torch.tensor([[5, 6], [7, 8]]))

    assert ngram.context(torch.tensor([1, 2, 3])).tolist() == [[7, 8], [EOS, EOS], [5, 6]]
    with pytest.raises(PoolError, match=r"contexts are \(1, 2\) tokens, not \(1, 3\)"):
        ngram.set_context(torch.tensor([1]), torch.tensor([[1, 2, 3]]))


def test_short_convolutions_name_their_layers(storage):
    state = ShortConvState(
        slots=2, layer_ids=(0, 5), shape=(6, 2), dtype=torch.bfloat16, storage=storage
    )

    assert state.windows(5).shape == (3, 6, 2)
    with pytest.raises(PoolError, match="layer 2 has no short convolution"):
        state.windows(2)


@pytest.mark.parametrize("slots", [[7], [-1], [2, 99]])
def test_foreign_slots_are_refused_before_anything_changes(storage, slots):
    pool = with_siblings(storage)
    fill(pool, 2, 3)
    wrong = torch.tensor(slots)

    for change in (
        lambda: pool.reset_slots(wrong),
        lambda: pool.copy_slots(wrong, torch.ones_like(wrong)),
        lambda: pool.copy_slots(torch.ones_like(wrong), wrong),
        lambda: pool.save_slots(wrong),
    ):
        with pytest.raises(PoolError, match="the state slot list names slot"):
            change()
    assert contents(pool, 2) == [{3.0}] * 4


def test_uneven_copies_and_foreign_layers_are_refused(storage):
    pool = state_pool(storage)

    with pytest.raises(PoolError, match="2 state slots do not pair with 1"):
        pool.copy_slots(torch.tensor([1, 2]), torch.tensor([3]))
    with pytest.raises(PoolError, match="layer 3 has no recurrent state") as refusal:
        pool.layer_state(3)
    assert refusal.value.hint == "its layers are 2, 5-6"


class Owners(RuleBasedStateMachine):
    """Slots change hands in any way; what an owner reads is its own or blank, never another's."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = with_siblings(open_storage("cpu"))
        self.owner: dict[int, int] = {}
        self.saved: list[tuple[int, Any]] = []
        self.next_owner = 1

    @rule(slot=st.integers(1, SLOTS))
    def take(self, slot: int) -> None:
        if slot in self.owner:
            return
        self.pool.reset_slots(torch.tensor([slot]))
        assert contents(self.pool, slot) == blank()
        self.owner[slot] = self.next_owner
        fill(self.pool, slot, self.next_owner)
        self.next_owner += 1

    @rule(slot=st.integers(1, SLOTS))
    def give_back(self, slot: int) -> None:
        self.owner.pop(slot, None)

    @rule(donor=st.integers(1, SLOTS), heir=st.integers(1, SLOTS))
    def fork(self, donor: int, heir: int) -> None:
        if donor in self.owner and heir not in self.owner:
            self.pool.copy_slots(torch.tensor([donor]), torch.tensor([heir]))
            self.owner[heir] = self.owner[donor]

    @rule(slot=st.integers(1, SLOTS))
    def retract(self, slot: int) -> None:
        if slot in self.owner:
            self.saved.append((self.owner.pop(slot), self.pool.save_slots(torch.tensor([slot]))))

    @rule(slot=st.integers(1, SLOTS))
    def resume(self, slot: int) -> None:
        if slot not in self.owner and self.saved:
            owner, image = self.saved.pop()
            self.pool.load_slots(image, torch.tensor([slot]))
            self.owner[slot] = owner

    @invariant()
    def owners_read_their_own_state(self) -> None:
        for slot, owner in self.owner.items():
            assert contents(self.pool, slot) == [{float(owner)}] * 4


TestOwners = Owners.TestCase
TestOwners.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)
