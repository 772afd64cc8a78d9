"""Write addresses: what narrows with them, and what they refuse."""

from __future__ import annotations

import pytest
import torch

from kvplan.errors import PoolError
from kvplan.pools.write_loc import KVWriteLoc, check_slots


def slots(side: torch.Tensor | None) -> list[int] | None:
    return None if side is None else side.tolist()


def test_sub_pool_locations_are_cut_to_loc():
    padded = torch.arange(8)

    loc = KVWriteLoc(torch.arange(5), swa_loc=padded + 10, full_loc=padded)

    assert slots(loc.swa_loc) == [10, 11, 12, 13, 14]
    assert slots(loc.full_loc) == [0, 1, 2, 3, 4]
    assert len(loc) == 5


def test_a_slice_keeps_every_side_and_the_mark():
    part = KVWriteLoc(torch.arange(6), swa_loc=torch.arange(6) + 10, physical=True)[2:4]

    assert part.loc.tolist() == [2, 3]
    assert slots(part.swa_loc) == [12, 13]
    assert part.full_loc is None
    assert part.physical


def test_a_side_shorter_than_loc_is_refused():
    with pytest.raises(PoolError, match="swa_loc has 2 slots for the 3 tokens of loc"):
        KVWriteLoc(torch.arange(3), swa_loc=torch.arange(2))
    with pytest.raises(PoolError, match="full_loc has 0 slots for the 3 tokens of loc"):
        KVWriteLoc(torch.arange(3), full_loc=torch.arange(0))


@pytest.mark.parametrize(
    "loc", [torch.zeros(2, 2, dtype=torch.long), torch.zeros(2), torch.tensor(3)]
)
def test_slots_are_a_row_of_integers(loc):
    with pytest.raises(PoolError, match="a row of int32 or int64 slots"):
        KVWriteLoc(loc)


def test_the_mark_is_read_without_the_device():
    loc = KVWriteLoc(torch.empty(4, dtype=torch.long, device="meta"), physical=True)

    check_slots(loc.loc, 1)  # meta slots have no values: nothing is read from them
    assert loc.physical is True
