"""Allocators answer as their meaning does, written apart from them on plain lists."""

from __future__ import annotations

import pytest

from tests.allocators.pairs import PagedPair, RingPair, TokenPair
from tests.allocators.side_pairs import InterleavedPair, SlidingPair, SparsePair

NUM_STEPS = {"quick": 150, "nightly": 20_000}
SEEDS = range(6)

PAIRS = [TokenPair, PagedPair, RingPair, SlidingPair, SparsePair, InterleavedPair]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("pair", PAIRS)
def test_the_allocator_answers_as_its_meaning(pair, seed):
    pair(seed).run(NUM_STEPS["quick"])


@pytest.mark.nightly
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("pair", PAIRS)
def test_the_allocator_answers_as_its_meaning_overnight(pair, seed):
    pair(1000 + seed).run(NUM_STEPS["nightly"])
