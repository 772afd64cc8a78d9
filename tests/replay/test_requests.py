"""A canonical request refuses what cannot be replayed."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.errors import TraceError
from kvplan.replay.requests import BlockIds, Request, TokenIds, TokenRuns

SOUND: dict[str, Any] = {"rid": "a", "t_ns": 0, "input_len": 1000, "output_len": 0}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"input_len": 0}, "input of 0"),
        ({"output_len": -1}, "output of -1"),
        ({"t_ns": -5}, "before the trace starts"),
        ({"delay_ns": -5}, "before the trace starts"),
        ({"max_new": -2}, "asks for -2"),
        ({"identity": TokenIds(prompt=(1, 2))}, "2 token ids for 1000"),
        (
            {"identity": TokenRuns(shifts=[1, 9], stops=[400, 2000], length=999)},
            "999 token ids for 1000",
        ),
        ({"identity": BlockIds(ids=(1,), block_size=0)}, "blocks of 0"),
        ({"identity": BlockIds(ids=(1, 2, 3), block_size=512)}, "3 blocks of 512 for 1000"),
    ],
)
def test_a_request_that_cannot_be_replayed_is_refused(change, problem):
    with pytest.raises(TraceError, match=problem):
        Request(**{**SOUND, **change})


def test_blocks_may_end_before_the_prompt_does():
    request = Request(**SOUND, identity=BlockIds(ids=(7,), block_size=512))

    assert isinstance(request.identity, BlockIds)
    assert request.identity.ids == (7,)
