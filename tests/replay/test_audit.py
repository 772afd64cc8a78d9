"""What an audit finds: damage to rows, generations, the tree and what goes back, each by its request and slot."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch

from kvplan.allocators.paged import PagedAllocator
from kvplan.planner import PlanInputs, plan, read_inputs
from kvplan.pools.build import build
from kvplan.replay.checks import LISTS, OWNERS, RESERVE, Broken
from kvplan.replay.keys import OwnKey
from kvplan.replay.pools.assembly import Assembly, assemble
from kvplan.replay.pools.audit import ReserveRule
from kvplan.replay.pools.devices import place_named
from kvplan.replay.pools.player import Player
from kvplan.replay.pools.watched import Growth, Tenancy, first_repeated
from kvplan.replay.prefix_cache import PrefixCache
from kvplan.replay.sequence import Sequence
from kvplan.replay.settings import server_of
from kvplan.replay.trace import PoolOptions
from kvplan.replay.workloads.operations import Alloc, Extend
from kvplan.sizing.plan import Plan

PAGE = 16
SERVER = {"max_total_tokens": 1024, "max_running_requests": 4, "context_length": 512}


@pytest.fixture
def assembly() -> Assembly:
    """Two requests of three pages each on small pools."""
    inputs = PlanInputs(model="llama-3.1-8b", gpu="h100", server={**SERVER, "page_size": PAGE})
    outcome = plan(read_inputs(inputs)).outcome
    assert isinstance(outcome, Plan)
    pools = build(outcome, "cpu", kv_scale=True)
    made = assemble(server_of(outcome), pools, place_named("cpu"), PoolOptions(), played=True)
    player = Player(made.memory)
    player.play(Alloc(requests=("a", "b")))
    player.play(Extend(requests=("a", "b"), prefix_lens=(0, 0), seq_lens=(40, 48)))
    made.auditor._root = PrefixCache(PAGE, lambda _: None).root
    made.audit()
    return made


def row_of(assembly: Assembly, name: str) -> int:
    return next(row for row, each in assembly.memory.tenancies.items() if each.name == name)


def slots_of(assembly: Assembly, name: str) -> torch.Tensor:
    return assembly.memory.inner.rows.req_to_token[row_of(assembly, name), :48].long()


def found(assembly: Assembly) -> Broken:
    with pytest.raises(Broken) as caught:
        assembly.audit()
    return caught.value


def test_a_row_with_a_page_of_somebody_else_is_found(assembly: Assembly):
    rows, theirs = assembly.memory.inner.rows.req_to_token, slots_of(assembly, "b")
    rows[row_of(assembly, "a"), :PAGE] = theirs[:PAGE].int()
    broken = found(assembly)

    assert (broken.check, broken.request, broken.slot) == (OWNERS, "a", int(theirs[0]))
    assert (
        broken.problem
        == f"its row has page {int(theirs[0]) // PAGE}, which is owned by request 'b'"
    )


def test_an_owned_page_that_is_in_no_row_is_found(assembly: Assembly):
    lost = int(slots_of(assembly, "a")[PAGE])
    row = row_of(assembly, "a")
    assembly.auditor._reached[row] = PAGE
    broken = found(assembly)

    assert (broken.check, broken.request, broken.slot) == (OWNERS, "a", lost)
    assert "is owned, but in no row and no tree node" in broken.problem


def test_a_generation_that_stands_still_is_found(assembly: Assembly):
    row = row_of(assembly, "b")
    assembly.memory.inner.rows.req_generation[row] -= 1
    broken = found(assembly)

    assert (broken.check, broken.request) == (LISTS, "b")
    assert broken.problem == f"row {row} had 1 tenants and its generation went up by 0"


def test_a_page_that_stands_twice_in_the_tree_is_found(assembly: Assembly):
    cache = PrefixCache(PAGE, lambda _: None)
    slots = slots_of(assembly, "b")
    twice = torch.cat((slots[:32], slots[16:32]))
    cache.insert(OwnKey(), twice)
    assembly.auditor._root = cache.root
    broken = found(assembly)

    assert (broken.check, broken.request, broken.slot) == (OWNERS, "b", int(slots[16]))
    assert "stands twice in the prefix tree" in broken.problem


def test_pages_that_nobody_owns_do_not_go_back(assembly: Assembly):
    slots = slots_of(assembly, "a")[:PAGE]
    assembly.books.freed(slots, "both")
    with pytest.raises(Broken) as caught:
        assembly.books.freed(slots, "both")

    assert (caught.value.check, caught.value.request) == (OWNERS, "a")
    assert caught.value.slot == int(slots[0])


def test_a_prefix_that_nobody_owns_is_no_prefix(assembly: Assembly):
    allocator = assembly.memory.inner.allocator
    assert isinstance(allocator, PagedAllocator)
    free = allocator.free_pages()[:1] * PAGE
    sequence = Sequence("c", OwnKey(), 40, 1, 1, PrefixCache(PAGE, lambda _: None).no_lock)
    with pytest.raises(Broken) as caught:
        assembly.memory.open_row(sequence, [free + torch.arange(PAGE)])

    assert (caught.value.check, caught.value.request) == (OWNERS, "c")
    assert "which nobody owns" in caught.value.problem


def growth(kind: Literal["extend", "reserve"], counts: list[int]) -> Growth:
    """Requests r0, r1 ... that grow by so many slots each, from 100 on."""
    lock = PrefixCache(1, lambda _: None).no_lock
    stops = np.cumsum(counts)
    tenancies = [
        Tenancy(n + 1, f"r{n}", Sequence(f"r{n}", OwnKey(), 1, 1, 1, lock))
        for n in range(len(counts))
    ]
    slots = np.arange(100, 100 + stops[-1])
    zeros = np.zeros(len(counts), dtype=np.int64)
    return Growth(
        kind, tenancies, zeros, zeros + 1, zeros, np.array(counts), slots, torch.from_numpy(slots)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "counts", "request_", "slot"),
    [("reserve", [12, 3], "r0", 111), ("reserve", [3, 12], "r1", 114)],
)
def test_who_exceeds_its_reserve_is_named_with_its_own_slot(kind, counts, request_, slot):
    rule = ReserveRule(reserve_len=8, page_size=1, row_width=64)
    with pytest.raises(Broken) as caught:
        rule.grown(growth(kind, counts))

    assert (caught.value.check, caught.value.request, caught.value.slot) == (
        RESERVE,
        request_,
        slot,
    )


@pytest.mark.parametrize(
    ("values", "at"), [([1, 2, 3], None), ([5, 5], 1), ([3, 1, 2, 1, 3], 3), ([], None)]
)
def test_the_first_value_that_stood_before_is_found(values, at):
    assert first_repeated(np.array(values, dtype=np.int64)) == at
