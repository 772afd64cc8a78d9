"""What raises the pools beside the plain one."""

from __future__ import annotations

import pytest

from kvplan.planner import PlanInputs, plan, read_inputs
from kvplan.report.replay_remedies import num_states, state_remedies
from kvplan.sizing.plan import Plan


def planned(**arguments: object) -> Plan:
    inputs = PlanInputs(model="qwen3-next-80b-a3b", gpu="h200", server={"tp_size": 2, **arguments})
    outcome = plan(read_inputs(inputs)).outcome
    assert isinstance(outcome, Plan)
    return outcome


@pytest.mark.parametrize("slots", [10, 200])
def test_state_slots_are_raised_by_their_own_flag(slots):
    remedies = state_remedies(planned(max_mamba_cache_size=slots))

    flag, _, number = remedies[0].flag.partition(" ")
    assert flag == "--max-mamba-cache-size"
    again = planned(max_mamba_cache_size=int(number))
    assert remedies[0].value == num_states(again) > slots
