"""Free memory as a user gives it: measured, estimated, or impossible."""

from __future__ import annotations

import pytest

from kvplan.errors import InputError
from kvplan.planner import PlanInputs, plan, read_inputs
from kvplan.sizing.memory import MemoryInputs


def measured(**figures: float) -> PlanInputs:
    return PlanInputs(model="qwen3-8b", gpu="h100", memory=MemoryInputs(**figures))


@pytest.mark.parametrize(
    ("figures", "problem"),
    [
        ({"free_before_gib": 79.7}, r"free_before_gib 79\.7 exceeds the 79\.65 GiB"),
        ({"context_gib": 80}, r"context_gib 80 exceeds the 79\.65 GiB"),
        ({"free_after_gib": 60, "weights_gib": 5}, "both say what the weights take"),
    ],
)
def test_figures_that_no_card_has_are_refused(figures, problem):
    with pytest.raises(InputError, match=problem):
        read_inputs(measured(**figures))


@pytest.mark.parametrize(
    "figures",
    [
        {},
        {"free_before_gib": 79.6, "free_after_gib": 60},
        {"free_after_gib": 60},
        {"weights_gib": 15.3, "context_gib": 1},
        {"free_before_gib": 0, "free_after_gib": 0},
    ],
)
def test_free_memory_stays_between_nothing_and_the_card(figures):
    memory = plan(read_inputs(measured(**figures))).estimate.memory

    assert 0 <= memory.post_load_gib <= memory.pre_load_gib <= 81559 / 1024
