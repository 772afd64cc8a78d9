"""What the engine makes of a request before it joins the queue."""

from __future__ import annotations

import pytest

from kvplan.replay.intake import Intake
from kvplan.replay.server import Server


def server(**change):
    settings = {
        "page_size": 16,
        "num_tokens": 4096,
        "num_rows": 8,
        "row_width": 2052,
        "max_running_requests": 8,
        "context_len": 2048,
        "chunked_prefill_size": None,
    }
    return Server(**{**settings, **change})


@pytest.mark.parametrize(
    ("change", "input_len", "max_new", "left"),
    [
        ({}, 100, 50, 50),
        ({}, 100, 10_000, 2047 - 100 - 1),
        ({"context_len": 8192}, 100, 10_000, 4096 - 112 - 16 - 1),
        ({"context_len": 8192}, 4080, 10, 0),
    ],
)
def test_a_wish_is_clipped_to_context_and_an_empty_pool(change, input_len, max_new, left):
    assert Intake(server(**change)).clip(input_len, max_new) == left


def test_a_prompt_is_refused_where_context_or_pool_end():
    intake = Intake(server())

    assert intake.max_len == 2047
    assert intake.refusal(2041) is None
    assert intake.refusal(2042) == "the input reaches the limit of 2,042 tokens (context)"
    assert "(KV pool)" in (Intake(server(context_len=9999)).refusal(5000) or "")


@pytest.mark.parametrize("num_tokens", [1, 2, 6])
def test_a_pool_without_room_for_any_prompt_has_a_limit_of_none(num_tokens):
    assert Intake(server(num_tokens=num_tokens)).refusal(1) == (
        "the input reaches the limit of 0 tokens (KV pool)"
    )
