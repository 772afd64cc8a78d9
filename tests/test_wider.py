"""The width that is advised where weights do not fit: it starts, and half of it does not."""

from __future__ import annotations

import re

import pytest

from kvplan.planner import Launch, PlanInputs, plan, read_inputs
from kvplan.sizing.memory import MemoryInputs
from kvplan.sizing.plan import Plan
from kvplan.wider import wider


def launch(model: str, gpu: str, tp_size: int = 1, **measured: float) -> Launch:
    memory = MemoryInputs(**measured)
    return read_inputs(PlanInputs(model=model, gpu=gpu, server={"tp_size": tp_size}, memory=memory))


@pytest.mark.parametrize(
    ("model", "gpu"),
    [
        ("qwen3-next-80b-a3b", "h100"),
        ("llama-3.1-70b", "l4"),
        ("deepseek-v3", "h100"),
        ("kimi-k3", "h200"),
        ("deepseek-v4-flash", "h100"),
        ("gpt-oss-120b", "rtx-4090"),
    ],
)
def test_the_advised_width_starts_and_half_of_it_does_not(model, gpu):
    advice = wider(launch(model, gpu))

    assert advice is not None
    said = re.fullmatch(r"--tp-size (\d+) → ([\d,]+) tokens", advice)
    assert said is not None
    width = int(said[1])
    found = plan(launch(model, gpu, width))
    assert found.starts
    assert isinstance(found.outcome, Plan)
    assert f"{found.outcome.tokens:,}" == said[2]
    assert not plan(launch(model, gpu, width // 2)).starts


def test_weights_of_one_width_say_nothing_of_another():
    assert wider(launch("deepseek-v3", "h100", free_after_gib=0)) is None
    assert wider(launch("deepseek-v3", "h100", weights_gib=100)) is None


def test_no_width_is_advised_where_none_starts():
    assert wider(launch("kimi-k3", "t4", context_gib=14.9)) is None


def test_the_advice_is_shown(kvplan):
    _, out, _ = kvplan("size", "qwen3-next-80b-a3b", "--gpu", "h100")

    assert out.startswith("does not start: the weights leave -85.47 GiB for state and KV\n")
    assert "no memory setting starts this; more ranks do: --tp-size 4 → 1,250,755 tokens" in out


def test_a_fraction_above_the_whole_card_is_said_to_be_one(kvplan):
    _, out, _ = kvplan("size", "llama-3.1-70b", "--gpu", "h100")

    assert re.search(r"--mem-fraction-static above 1\.\d{3}, more than there is\n", out)
