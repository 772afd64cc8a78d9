"""The prefix cache answers as the engine's, and loses nothing whatever is done to it."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import InputError
from kvplan.replay.conformance import list_of, prefix_tree_differences
from kvplan.replay.eviction import POLICIES
from kvplan.replay.keys import TokenKey
from kvplan.replay.prefix_cache import Lock, PrefixCache
from tests.replay.golden import records


def test_every_recorded_tree_is_followed(shared):
    traces = list(records(shared / "golden" / "prefix-tree.jsonl.gz"))

    assert len(traces) == 140
    assert {
        trace["seed"]: found for trace in traces if (found := prefix_tree_differences(trace))
    } == {}


def test_a_changed_record_is_a_difference(shared):
    trace = copy.deepcopy(next(records(shared / "golden" / "prefix-tree.jsonl.gz")))
    trace["ops"][0]["after"]["evictable"] += 1

    assert "op 0 (insert) after" in prefix_tree_differences(trace)[0]


def test_an_unknown_policy_names_the_known_ones():
    with pytest.raises(InputError, match="unknown eviction policy 'lry'") as refused:
        PrefixCache(1, lambda _: None, "lry")

    assert refused.value.hint == "did you mean 'lru'?"


class Naive:
    """All cached prefixes as a set of token tuples, a page longer each."""

    def __init__(self, page_size):
        self.page_size = page_size
        self.prefixes = set()

    def pages(self, tokens):
        ends = range(self.page_size, len(tokens) + 1, self.page_size)
        return [tuple(tokens[:end]) for end in ends]

    def match(self, tokens):
        found = [prefix for prefix in self.pages(tokens) if prefix in self.prefixes]
        return max(map(len, found), default=0)


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.lists(st.integers(0, 2), max_size=12)),
        st.tuples(st.just("match"), st.lists(st.integers(0, 2), max_size=12)),
        st.tuples(st.just("lock"), st.lists(st.integers(0, 2), max_size=12)),
        st.tuples(st.just("unlock"), st.none()),
        st.tuples(st.just("evict"), st.integers(1, 12)),
    ),
    max_size=40,
)


@given(OPERATIONS, st.sampled_from([1, 2, 4]), st.sampled_from(sorted(POLICIES)))
def test_slots_are_never_lost_nor_given_out_twice(operations, page_size, policy):
    released: list[int] = []
    inserted: list[int] = []
    locks: list[tuple[Lock, list[int]]] = []
    cache = PrefixCache(page_size, lambda slots: released.extend(list_of(slots)), policy)
    naive = Naive(page_size)
    for operation, argument in operations:
        released.clear()
        match operation:
            case "insert":
                slots = list(range(len(inserted), len(inserted) + len(argument)))
                result = cache.insert(TokenKey(argument), slots)
                assert result.prefix_len == naive.match(argument)
                assert released == slots[: result.prefix_len]
                naive.prefixes.update(naive.pages(argument))
                inserted += slots
            case "match":
                assert cache.match(TokenKey(argument), len(argument)).prefix_len == naive.match(
                    argument
                )
            case "lock":
                found = cache.match(TokenKey(argument), len(argument))
                locks.append((cache.lock(found.node), argument))
            case "unlock" if locks:
                cache.unlock(locks.pop()[0])
            case "evict":
                before = cache.evictable
                evicted = cache.evict(argument)
                assert evicted == len(released) == len(set(released)) == before - cache.evictable
                assert evicted >= min(argument, before)
                gone = [
                    prefix
                    for prefix in naive.prefixes
                    if cache.match(TokenKey(prefix), len(prefix)).prefix_len < len(prefix)
                ]
                naive.prefixes.difference_update(gone)
                assert len(gone) * page_size == evicted

        assert cache.evictable + cache.protected == len(naive.prefixes) * page_size
        assert all(naive.match(tokens) >= lock.node.stop for lock, tokens in locks)
        assert cache.protected >= max((lock.node.stop for lock, _ in locks), default=0)
