"""The new-token ratio falls with each step, starts anew, and is estimated after a retraction."""

from __future__ import annotations

import pytest

from kvplan.replay.ratio import NewTokenRatio, ratio_after_retraction


def test_the_ratio_falls_to_its_floor_in_600_steps():
    ratio = NewTokenRatio(conservativeness=1.0)
    assert ratio.current == 0.7

    for _ in range(300):
        ratio.step()
    assert ratio.current == pytest.approx(0.7 - 0.301)

    for _ in range(400):
        ratio.step()
    assert ratio.current == ratio.lowest == pytest.approx(0.098)

    ratio.reset()
    assert ratio.current == 0.7


def test_conservativeness_scales_up_to_one():
    assert NewTokenRatio(0.3).current == pytest.approx(0.21)
    assert NewTokenRatio(2.0).current == 1.0


@pytest.mark.parametrize(
    ("survivors", "ratio"),
    [([], 0.0), ([(10, 100), (30, 99)], 80 / 200), ([(500, 10)], 1.0)],
)
def test_after_a_retraction_twenty_steps_more_are_reckoned_with(survivors, ratio):
    assert ratio_after_retraction(survivors) == ratio


def test_an_estimate_below_the_floor_rises_to_it():
    ratio = NewTokenRatio(1.0)
    ratio.current = 0.0

    ratio.step()
    assert ratio.current == ratio.lowest
