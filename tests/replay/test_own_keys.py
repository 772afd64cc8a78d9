"""Requests whose trace says nothing about their tokens share none, whatever they are called."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvplan.replay.keys import key_of
from kvplan.replay.prefix_cache import PrefixCache
from kvplan.replay.requests import Request


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 100)), min_size=2, max_size=8),
    st.sampled_from([1, 16]),
)
def test_requests_of_one_name_keep_apart(requests, page_size):
    cache = PrefixCache(page_size, lambda _: None)
    for rid, input_len in requests:
        key = key_of(Request(rid=rid, t_ns=0, input_len=input_len, output_len=1))
        assert cache.match(key, input_len).prefix_len == 0
        cache.insert(key, range(input_len))
        assert cache.match(key, input_len).prefix_len == input_len // page_size * page_size
