"""Whatever is done to an allocator in any order: nothing lost, nothing twice, refusals change nothing."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.allocators.machine import Machine
from tests.allocators.machines import (
    CompressedMachine,
    InterleavedMachine,
    PagedMachine,
    RingMachine,
    SlidingMachine,
    SparseMachine,
    TokenMachine,
)
from tests.allocators.shared_machines import (
    UnifiedHybridMachine,
    UnifiedMachine,
    UnifiedStateMachine,
)
from tests.allocators.slot_machines import OwnedMachine, RowMachine, StateSlotMachine

MACHINES: list[type[Machine] | type[OwnedMachine]] = [
    TokenMachine,
    PagedMachine,
    SlidingMachine,
    RingMachine,
    UnifiedMachine,
    UnifiedStateMachine,
    UnifiedHybridMachine,
    InterleavedMachine,
    SparseMachine,
    CompressedMachine,
    StateSlotMachine,
    RowMachine,
]

QUICK_STEPS = 2_000
NIGHTLY_STEPS = 200_000
STEPS_A_RUN = 60


def run_steps(machine: type[Machine] | type[OwnedMachine], num_steps: int) -> None:
    """Run one machine for at least so many steps."""
    machine.steps = 0
    while machine.steps < num_steps:
        missing = num_steps - machine.steps
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=max(10, missing // STEPS_A_RUN),
                stateful_step_count=STEPS_A_RUN,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_nothing_is_lost_or_handed_out_twice(machine):
    run_steps(machine, QUICK_STEPS)

    assert machine.steps >= QUICK_STEPS


@pytest.mark.nightly
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_nothing_is_lost_or_handed_out_twice_overnight(machine):
    run_steps(machine, NIGHTLY_STEPS)

    assert machine.steps >= NIGHTLY_STEPS
