"""Tables beside the pools count too: a plan that the card cannot hold does not start."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan import catalog
from kvplan.planner import Launch, plan
from kvplan.report.plan import size_report
from kvplan.sizing.memory import MemoryInputs
from kvplan.spec.server import server_args


def report(**args: Any) -> dict[str, Any]:
    model = catalog.load_model("llama-4-scout-17b-16e-instruct")
    gpu = catalog.load_gpu("h200")
    return size_report(plan(Launch(model, None, gpu, server_args(args), MemoryInputs())))


def left(found: dict[str, Any]) -> int:
    uses: dict[str, int] = {e["name"]: e["bytes"] for e in found["ledger"]["entries"]}
    return uses["graphs and activations"]


@pytest.mark.parametrize(
    ("args", "overcommitted"),
    [
        ({}, True),  # rows for 10,485,760 tokens: 2,049 of them take 80 GiB
        ({"context_length": 1_000_000}, False),
        ({"max_running_requests": 64}, False),
    ],
)
def test_rows_that_the_card_cannot_hold_run_out_of_memory(args, overcommitted):
    found = report(tp_size=8, **args)

    assert (left(found) < 0) == overcommitted
    assert found["verdict"]["starts"] is not overcommitted
    assert found["verdict"]["text"].startswith("runs out" if overcommitted else "starts")
    # the engine sizes its pools before it allocates: what it would have is still told
    assert found["pool"]["max_total_num_tokens"] > 1_000_000


def test_each_cure_of_such_a_plan_leaves_the_card_enough():
    found = report(tp_size=8)

    assert [cure["flag"] for cure in found["cures"]] == [
        "--mem-fraction-static",
        "--max-running-requests",
        "--context-length",
    ]
    for cure in found["cures"]:
        field = cure["flag"].removeprefix("--").replace("-", "_")
        value = float(cure["value"]) if "." in cure["value"] else int(cure["value"])
        cured = report(tp_size=8, **{field: value})

        assert cured["verdict"]["starts"], cure
        assert cured["pool"]["max_total_num_tokens"] == cure["tokens"]
        assert left(cured) >= 0


def test_the_exit_code_is_no(kvplan):
    launch = ("size", "llama-3.1-8b", "--gpu", "l4", "--mem-fraction-static", "0.99")
    code, out, _ = kvplan(*launch)
    quiet, line, _ = kvplan(*launch, "--quiet")

    assert (code, quiet) == (1, 1)
    assert out.startswith(line)
    assert line.startswith("runs out of memory: ")
    assert "try --mem-fraction-static: lower to ≤ " in out
    assert "the card" in out
