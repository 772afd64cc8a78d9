"""The torch references against the token-by-token meaning."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from kvplan.kernels.alloc_decode import alloc_decode_reference
from kvplan.kernels.alloc_extend import alloc_extend_reference
from kvplan.kernels.decode_step import decode_step_reference
from kvplan.kernels.unmap_pages import unmap_pages_reference
from kvplan.kernels.write_rows import write_rows_reference
from tests.kernels import oracle
from tests.kernels.cases import PAGE_SIZES, Batch, batch_of, edge_batches, random_batch, table_of


def vector(values: list[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)


def batches(page_size: int) -> list[Batch]:
    return [
        *edge_batches(page_size).values(),
        *(random_batch(page_size, seed) for seed in range(60)),
    ]


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_extend_gives_each_token_its_slot(page_size):
    for batch in batches(page_size):
        slots = alloc_extend_reference(
            vector(batch.prefix_lens),
            vector(batch.seq_lens),
            vector(batch.last_loc),
            vector(batch.free_pages),
            page_size,
        )

        assert slots.tolist() == oracle.extend_slots(
            batch.prefix_lens, batch.seq_lens, batch.last_loc, batch.free_pages, page_size
        )


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_decode_is_an_extend_by_one(page_size):
    for seed in range(60):
        lens = random_batch(page_size, seed).prefix_lens
        batch = batch_of(page_size, [(prefix_len, 1) for prefix_len in lens], seed)

        slots = alloc_decode_reference(
            vector(batch.seq_lens), vector(batch.last_loc), vector(batch.free_pages), page_size
        )

        assert slots.tolist() == oracle.extend_slots(
            batch.prefix_lens, batch.seq_lens, batch.last_loc, batch.free_pages, page_size
        )


@given(
    page_size=st.integers(1, 40),
    lens=st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), max_size=8),
)
def test_each_new_token_has_its_own_slot_in_a_page_of_its_request(page_size, lens):
    batch = batch_of(page_size, lens)

    slots = alloc_extend_reference(
        vector(batch.prefix_lens),
        vector(batch.seq_lens),
        vector(batch.last_loc),
        vector(batch.free_pages),
        page_size,
    ).tolist()

    held = {slot for own in batch.slots for slot in own}
    assert len({*slots} | held) == len(slots) + len(held)
    num_new_pages = sum(
        -(-seq_len // page_size) + -prefix_len // page_size
        for prefix_len, seq_len in zip(batch.prefix_lens, batch.seq_lens, strict=True)
    )
    opened = {slot // page_size for slot in slots} - {slot // page_size for slot in held}
    assert opened == set(batch.free_pages[:num_new_pages])


def test_decode_of_no_request_is_empty():
    none = vector([])

    assert alloc_decode_reference(none, none, vector([1, 2]), 16).shape == (0,)


def test_decode_at_page_one_takes_a_page_a_request():
    slots = alloc_decode_reference(vector([5, 1, 9]), vector([40, -1, 41]), vector([7, 3, 8, 2]), 1)

    assert slots.tolist() == [7, 3, 8]


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_decode_step_skips_padded_requests(page_size):
    for seed in range(40):
        lens = random_batch(page_size, seed).prefix_lens
        batch = batch_of(page_size, [(prefix_len, 1) for prefix_len in lens], seed)
        rows = [0 if i % 3 == seed % 3 else row for i, row in enumerate(batch.rows)]
        table = table_of(batch)
        expected = table.tolist()

        slots = decode_step_reference(
            table, vector(rows), vector(batch.seq_lens), vector(batch.free_pages), page_size
        )

        assert slots.tolist() == oracle.decode_rows(
            expected, rows, batch.seq_lens, batch.free_pages, page_size
        )
        assert table.tolist() == expected


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_write_rows_puts_each_slot_at_its_position(page_size):
    for batch in batches(page_size):
        table = table_of(batch)
        expected = table.tolist()
        slots = list(range(1, batch.num_tokens + 1))

        write_rows_reference(
            table,
            vector(batch.rows),
            vector(batch.prefix_lens),
            vector(batch.seq_lens),
            vector(slots),
        )

        oracle.write_slots(expected, batch.rows, batch.prefix_lens, batch.seq_lens, slots)
        assert table.tolist() == expected


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_unmap_returns_each_sliding_page_once_then_zero(page_size):
    mapping = [0] * (6 * page_size) + [-1]
    mapping[page_size : 2 * page_size] = range(3 * page_size, 4 * page_size)
    mapping[4 * page_size] = 9 * page_size
    table, pages = vector(mapping), [4, 2, 1]

    swa_pages = unmap_pages_reference(vector(pages), table, page_size)
    again = unmap_pages_reference(vector(pages), table, page_size)

    assert swa_pages.tolist() == oracle.unmap(pages, mapping, page_size) == [9, 0, 3]
    assert again.tolist() == [0, 0, 0]
    assert table.tolist() == mapping == [0] * (6 * page_size) + [-1]


@pytest.mark.parametrize("num_free_pages", [0, 1])
def test_a_free_list_that_is_too_short_raises(num_free_pages):
    prefix_lens, last_loc = vector([0, 0]), vector([-1, -1])
    free_pages = vector([5, 6])[:num_free_pages]

    with pytest.raises(RuntimeError):
        alloc_extend_reference(prefix_lens, prefix_lens + 1, last_loc, free_pages, 4)
    with pytest.raises(RuntimeError):
        alloc_decode_reference(prefix_lens + 1, last_loc, free_pages, 4)
