"""Small plans of shipped presets for replays."""

from __future__ import annotations

from typing import Any

from kvplan.planner import PlanInputs, plan, read_inputs
from kvplan.replay.requests import Request
from kvplan.sizing.plan import Plan

SECOND = 1_000_000_000


def small_plan(
    model: str = "llama-3.1-8b", gpu: str = "h100", draft: str | None = None, **server: Any
) -> Plan:
    """A plan of few tokens and rows, so that its pools are quickly built."""
    settings = {"max_total_tokens": 8192, "max_running_requests": 32, "context_length": 4096}
    inputs = PlanInputs(model=model, gpu=gpu, draft=draft, server=settings | server)
    outcome = plan(read_inputs(inputs)).outcome
    assert isinstance(outcome, Plan)
    return outcome


def burst(num_requests: int, input_len: int, output_len: int, gap_ns: int = 0) -> list[Request]:
    """Requests of one shape, `gap_ns` apart."""
    return [
        Request(rid=f"r{number}", t_ns=number * gap_ns, input_len=input_len, output_len=output_len)
        for number in range(num_requests)
    ]
