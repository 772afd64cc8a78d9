"""Hashed blocks are compared as the tokens that they stand for."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from kvplan.replay.keys import BlockKey, TokenKey, key_of
from kvplan.replay.prefix_cache import PrefixCache
from kvplan.replay.requests import BlockIds, Request, TokenIds
from kvplan.units import floor_page


def request_of(rid, blocks, tail, block_size, *, chained):
    input_len = len(blocks) * block_size + tail
    ids = tuple(blocks)
    if chained:  # an id says what all blocks before it were
        ids = tuple(hash(tuple(blocks[: n + 1])) for n in range(len(blocks)))
    return Request(
        rid=rid,
        t_ns=0,
        input_len=input_len,
        output_len=1,
        identity=BlockIds(ids=ids, block_size=block_size),
    )


def tokens_of(rid, blocks, tail, block_size):
    shared = [("block", block, offset) for block in blocks for offset in range(block_size)]
    return [
        hash(token) for token in [*shared, *(("own", rid, offset) for offset in range(tail + 20))]
    ]


WORKLOADS = st.lists(
    st.tuples(st.lists(st.integers(0, 1), max_size=4), st.integers(1, 7)), min_size=1, max_size=12
)


@example([([0, 1], 1), ([1, 1], 1)], 4, 2, False)  # pages of which only the last blocks agree
@given(WORKLOADS, st.sampled_from([1, 4, 8]), st.sampled_from([2, 6, 8, 16]), st.booleans())
def test_blocks_and_their_tokens_match_alike(workload, page_size, block_size, chained):
    by_block = PrefixCache(page_size, lambda _: None)
    by_token = PrefixCache(page_size, lambda _: None)
    keys = []
    for number, (blocks, tail) in enumerate(workload):
        request = request_of(f"r{number}", blocks, tail, block_size, chained=chained)
        block_key = key_of(request)
        token_key = TokenKey(tokens_of(number, blocks, tail, block_size))
        limit = request.input_len - 1

        assert (
            by_block.match(block_key, limit).prefix_len
            == by_token.match(token_key, limit).prefix_len
        )

        stop = request.input_len + 5
        by_block.insert(block_key, range(stop))
        by_token.insert(token_key, range(stop))
        assert by_block.evictable == by_token.evictable
        keys.append((block_key, token_key, stop))
    for block_key, token_key, stop in keys:
        cached = by_block.match(block_key, stop).prefix_len
        assert cached == by_token.match(token_key, stop).prefix_len
    by_block.evict(by_block.evictable)
    assert not by_block.evictable


def test_a_partial_last_block_is_the_same_only_at_the_same_length():
    ids = BlockIds(ids=(1, 2), block_size=512)
    short, long, twin = (BlockKey(n, ids) for n in (600, 700, 600))

    assert short.common(long, 0, 700) == 512
    assert short.common(twin, 0, 700) == 600


def test_a_block_is_shared_up_to_its_last_whole_page():
    ids = BlockIds(ids=(1, 2), block_size=100)
    cache = PrefixCache(64, lambda _: None)
    cache.insert(BlockKey(200, ids), range(200))

    other = BlockKey(200, BlockIds(ids=(1, 3), block_size=100))
    assert cache.match(other, 200).prefix_len == floor_page(100, 64)


def test_namespaces_share_nothing():
    first = BlockKey(512, BlockIds(ids=(1,), block_size=512, namespace="x"))
    second = BlockKey(512, BlockIds(ids=(1,), block_size=512, namespace="y"))

    assert first.common(second, 0, 512) == 0
    assert first.page(0, 16) != second.page(0, 16)


def test_token_ids_of_a_request_include_its_answer():
    request = Request(
        rid="a", t_ns=0, input_len=2, output_len=2, identity=TokenIds(prompt=(1, 2), output=(3, 4))
    )

    assert key_of(request).page(0, 4) == (1, 2, 3, 4)


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=9), st.integers(0, 5))),
    st.sampled_from([1, 2, 4]),
)
def test_an_answer_that_is_not_known_is_shared_with_nobody(requests, page_size):
    known, full = PrefixCache(page_size, lambda _: None), PrefixCache(page_size, lambda _: None)
    for number, (prompt, num_outputs) in enumerate(requests):
        length = len(prompt) + num_outputs
        short = TokenKey(prompt)
        whole = TokenKey([*prompt, *((number, output) for output in range(num_outputs))])

        assert known.match(short, length).prefix_len == full.match(whole, length).prefix_len
        known.insert(short, range(length))
        full.insert(whole, range(length))
        assert known.evictable == full.evictable
        assert known.match(short, length).prefix_len == floor_page(length, page_size)
