"""Reserves of a decode step: the engine's records, its worked values and their bounds."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.sizing.reserves import alloc_len_per_decode, old_alloc_len_per_decode, reserves
from kvplan.sizing.resolve.resolve import resolve
from kvplan.sizing.resolved import Resolved, Speculation
from kvplan.spec.server import ServerArgs
from tests.sizing.resolve.golden import FILES, records, resolve_case
from tests.sizing.resolve.launches import H100, dense


@pytest.mark.parametrize("name", FILES)
def test_recorded_reserves_are_the_engines(name, shared):
    differences = [
        f"{case['id']}: {got}, the engine says {answer['reserves']}"
        for case, answer in records(shared, name)
        if "error" not in answer and (got := recorded(resolve_case(case))) != answer["reserves"]
    ]

    assert differences == []


@pytest.mark.parametrize(
    ("page_size", "algorithm", "numbers", "expected"),
    [
        (1, None, (None, None, None), (1, 2, 4)),
        (64, None, (None, None, None), (1, 2, 4)),
        (16, "EAGLE", (3, 4, 8), (128, 256, 271)),
        (1, "EAGLE", (3, 4, 8), (12, 24, 12)),
        (1, "EAGLE", (3, 1, 4), (4, 8, 8)),
        (64, "EAGLE", (3, 1, 4), (4, 8, 71)),
        (16, "NGRAM", (0, 10, 4), (10, 20, 35)),
        (1, "UNO", (1, 1, 4), (5, 10, 10)),
    ],
)
def test_worked_reserves(page_size, algorithm, numbers, expected):
    found = reserves(launch(page_size, algorithm, *numbers))

    assert (
        found.alloc_len_per_decode,
        found.alloc_reserve_per_decode,
        found.extra_context_len,
    ) == expected
    assert found.row_width == 4096 + expected[2]


@pytest.mark.parametrize(
    ("page_size", "numbers", "expected"),
    [(1, (3, 4, 8), 12), (16, (3, 4, 8), 128), (16, (3, 1, 4), 16), (64, (1, 1, 16), 64)],
)
def test_worked_reserves_without_overlap(page_size, numbers, expected):
    assert old_alloc_len_per_decode(launch(page_size, "EAGLE", *numbers)) == expected


@given(
    page_size=st.sampled_from([1, 2, 16, 64, 100]),
    steps=st.integers(1, 8),
    topk=st.integers(1, 8),
    tokens=st.integers(1, 64),
)
def test_a_decode_step_holds_every_branch_and_every_draft(page_size, steps, topk, tokens):
    resolved = launch(page_size, "EAGLE", steps, topk, tokens)

    found = alloc_len_per_decode(resolved)

    assert found >= max(steps * topk, tokens)
    assert reserves(resolved).extra_context_len >= 4 + tokens


def launch(page_size, algorithm, steps, topk, tokens) -> Resolved:
    resolved = resolve(ServerArgs(context_length=4096), dense(), H100)
    speculation = Speculation(
        algorithm=algorithm, num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens
    )
    return msgspec.structs.replace(resolved, page_size=page_size, speculation=speculation)


def recorded(resolved: Resolved) -> dict[str, int]:
    found = msgspec.structs.asdict(reserves(resolved))
    found["req_to_token_row_width"] = found.pop("row_width")
    return found
