"""Running requests grow together, with speculation by what is accepted on average."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import InputError
from kvplan.replay.keys import OwnKey
from kvplan.replay.lockstep import Lockstep
from kvplan.replay.prefix_cache import PrefixCache
from kvplan.replay.running import Running
from kvplan.replay.sequence import Sequence
from kvplan.replay.server import Speculation
from kvplan.units import ceil_div

SPECULATIONS = st.sampled_from(
    [None, *(Speculation(alloc_len=4, accept_len=accept) for accept in (1.0, 1.3, 2.75, 4.0))]
)


def test_acceptance_is_met_over_time():
    step = Lockstep(1, Speculation(alloc_len=4, accept_len=2.7))

    tokens = []
    for _ in range(10):
        step.launch()
        tokens.append(step.take_in())

    assert sum(tokens) == step.generated == 27
    assert set(tokens) == {2, 3}


@given(SPECULATIONS, st.integers(0, 30), st.integers(0, 200))
def test_as_many_steps_as_bring_no_more(speculation, num_before, num_tokens):
    step = Lockstep(1, speculation)
    for _ in range(num_before):
        step.launch()
        step.take_in()

    num_steps = step.steps_within(num_tokens)
    assert step.tokens_of(num_steps) <= num_tokens < step.tokens_of(num_steps + 1)


@pytest.mark.parametrize("accept_len", [0.5, 4.5])
def test_more_than_a_step_takes_cannot_be_accepted(accept_len):
    with pytest.raises(InputError, match="an acceptance of"):
        Speculation(alloc_len=4, accept_len=accept_len)


def sequence_of(committed):
    no_lock = PrefixCache(1, lambda _: None).no_lock
    sequence = Sequence("r", OwnKey(), committed, 1000, 1000, no_lock)
    sequence.commit(committed)
    return sequence


@given(
    SPECULATIONS,
    st.sampled_from([1, 4, 16]),
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 40)), min_size=1, max_size=8),
    st.lists(st.integers(1, 6), min_size=13, max_size=13),
)
def test_demand_is_the_sum_over_the_batch(speculation, page_size, comings, jumps):
    running = Running(Lockstep(page_size, speculation))
    for round_, num_steps in enumerate(jumps):
        newcomers = [sequence_of(committed) for when, committed in comings if when == round_]
        running.join(newcomers)
        num_steps = 1 if newcomers else num_steps
        before = [sequence.allocated() for sequence in running.sequences]
        num_pages, _ = running.demand(num_steps)
        running.launch(num_steps)
        running.lockstep.take_in(num_steps)
        after = [sequence.allocated() for sequence in running.sequences]

        assert num_pages == sum(
            ceil_div(new, page_size) - ceil_div(old, page_size)
            for old, new in zip(before, after, strict=True)
        )


@given(st.integers(1, 5), st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_leaving_the_batch_takes_nothing_along(num_steps, lengths):
    running = Running(Lockstep(4, Speculation(alloc_len=4, accept_len=2.5)))
    running.join([sequence_of(length) for length in lengths])
    for _ in range(num_steps):
        running.launch()
        running.lockstep.take_in()
    committed = [sequence.committed() for sequence in running.sequences]
    allocated = [sequence.allocated() for sequence in running.sequences]
    leavers = running.sequences
    running.leave(leavers)
    running.launch()
    running.lockstep.take_in()

    assert [sequence.committed() for sequence in leavers] == committed
    assert [sequence.allocated() for sequence in leavers] == allocated
    assert running.demand() == (0, 0)
