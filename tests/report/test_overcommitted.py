"""Tables beside the pools count too: what a card cannot hold is said aloud."""

from __future__ import annotations

import pytest

from kvplan import catalog
from kvplan.planner import Launch, MemoryInputs, plan
from kvplan.report.plan import size_report
from kvplan.spec.server import server_args


def report(**args: object) -> dict:
    model = catalog.load_model("llama-4-scout-17b-16e-instruct")
    gpu = catalog.load_gpu("h200")
    return size_report(plan(Launch(model, None, gpu, server_args(args), MemoryInputs())))


@pytest.mark.parametrize(
    ("args", "overcommitted"),
    [
        ({}, True),  # rows for 10,485,760 tokens: 2,049 of them take 80 GiB
        ({"context_length": 1_000_000}, False),
        ({"max_running_requests": 64}, False),
    ],
)
def test_rows_that_the_card_cannot_hold_are_a_warning(args, overcommitted):
    found = report(tp_size=8, **args)
    left = {entry["name"]: entry["bytes"] for entry in found["ledger"]["entries"]}

    assert (left["graphs and activations"] < 0) == overcommitted
    said = [text for text in found["warnings"] if "more than the card has" in text]
    assert len(said) == overcommitted
    assert found["verdict"]["starts"]  # the engine profiles first, and allocates afterwards
