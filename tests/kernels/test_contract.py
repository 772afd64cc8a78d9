"""Arguments that no kernel can serve are refused by name, before anything is launched."""

from __future__ import annotations

import pytest
import torch

from kvplan.errors import PoolError
from kvplan.kernels.alloc_decode import alloc_decode
from kvplan.kernels.alloc_extend import alloc_extend
from kvplan.kernels.decode_step import decode_step
from kvplan.kernels.unmap_pages import unmap_pages
from kvplan.kernels.write_rows import write_rows

ONE = torch.ones(1, dtype=torch.int64)
TWO = torch.ones(2, dtype=torch.int64)
TABLE = torch.zeros((2, 2), dtype=torch.int32)
STRIDED = torch.ones(4, dtype=torch.int64)[::2]
META = torch.ones(1, dtype=torch.int64, device="meta")

REFUSED = {
    "lengths as int32": (lambda: alloc_decode(ONE.int(), ONE, ONE, 16), "'seq_lens'"),
    "a strided vector": (lambda: alloc_decode(TWO, STRIDED, TWO, 16), "'last_loc'"),
    "a 2-D vector": (lambda: unmap_pages(ONE[:, None], TWO, 1), "'full_pages'"),
    "two devices": (lambda: alloc_decode(ONE, ONE, META, 16), "'free_pages' is on meta"),
    "two batches": (lambda: alloc_extend(ONE, TWO, ONE, TWO, 16, 0), "'seq_lens': 2"),
    "rows as int64": (lambda: decode_step(TABLE.long(), ONE, ONE, ONE, 16), "'req_to_token'"),
    "rows elsewhere": (lambda: write_rows(TABLE.to("meta"), ONE, ONE, ONE, ONE), "on meta"),
    "a page of nothing": (lambda: alloc_decode(ONE, ONE, ONE, 0), "page size 0"),
    "a negative count": (lambda: alloc_extend(ONE, ONE, ONE, ONE, 16, -1), "-1 new tokens"),
    "a short result": (lambda: alloc_decode(TWO, TWO, TWO, 16, out=ONE), "'out' has 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_the_launch(case):
    launch, problem = REFUSED[case]

    with pytest.raises(PoolError, match=problem) as refusal:
        launch()

    assert refusal.value.hint


def test_nothing_to_do_launches_nothing():
    none = torch.empty(0, dtype=torch.int64)

    assert alloc_extend(none, none, none, TWO, 16, 0).shape == (0,)
    assert alloc_decode(none, none, TWO, 16).shape == (0,)
    assert decode_step(TABLE, none, none, TWO, 16).shape == (0,)
    assert unmap_pages(none, TWO, 16).shape == (0,)
    write_rows(TABLE, none, none, none, none)
