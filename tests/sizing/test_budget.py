"""The byte budget where the card has next to nothing."""

from __future__ import annotations

import pytest

from kvplan.sizing.budget import Memory, smallest_fraction


@pytest.mark.parametrize(
    ("before", "after", "fraction"),
    [(80.0, 20.0, 0.75), (80.0, 0.0, 1.0), (137.9, 12.25, 0.912), (0.0, 0.0, 1.0)],
)
def test_the_smallest_fraction_is_what_the_weights_take(before, after, fraction):
    assert smallest_fraction(Memory(before, after)) == fraction


def test_a_card_without_free_memory_does_not_start(kvplan):
    code, out, _ = kvplan(
        "size", "llama-3.1-8b", "--gpu", "h100", "--free-before", "0", "--free-after", "0"
    )

    assert code == 1
    assert out.startswith("does not start: the weights leave 0.00 GiB for KV")
