"""Kernels equal to their references, cell for cell, guard bands included."""

from __future__ import annotations

import pytest

from kvplan.kernels.alloc_decode import alloc_decode, alloc_decode_reference
from kvplan.kernels.alloc_extend import alloc_extend, alloc_extend_reference
from kvplan.kernels.decode_step import decode_step, decode_step_reference
from kvplan.kernels.unmap_pages import unmap_pages, unmap_pages_reference
from kvplan.kernels.write_rows import write_rows, write_rows_reference
from tests.kernels.arena import SENTINEL, Arena
from tests.kernels.cases import PAGE_SIZES, Batch, batch_of, edge_batches, random_batch, table_of

NUM_RANDOM = 12


def batches(page_size: int) -> list[Batch]:
    random_ones = [random_batch(page_size, seed) for seed in range(NUM_RANDOM)]
    return [*edge_batches(page_size).values(), *random_ones]


def decode_batches(page_size: int) -> list[Batch]:
    return [
        batch_of(page_size, [(prefix_len, 1) for prefix_len in batch.prefix_lens])
        for batch in batches(page_size)
    ]


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_extend(device, page_size):
    for batch in batches(page_size):
        arena = Arena(
            device,
            prefix_lens=batch.prefix_lens,
            seq_lens=batch.seq_lens,
            last_loc=batch.last_loc,
            free_pages=batch.free_pages,
            out=[SENTINEL] * batch.num_tokens,
        )
        twin = arena.twin()
        inputs = "prefix_lens seq_lens last_loc free_pages"

        alloc_extend(
            **arena.take(inputs), page_size=page_size, num_tokens=batch.num_tokens, out=arena["out"]
        )

        twin["out"][:] = alloc_extend_reference(**twin.take(inputs), page_size=page_size)
        assert arena.same_as(twin)


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_decode(device, page_size):
    for batch in decode_batches(page_size):
        arena = Arena(
            device,
            seq_lens=batch.seq_lens,
            last_loc=batch.last_loc,
            free_pages=batch.free_pages,
            out=[SENTINEL] * len(batch.rows),
        )
        twin = arena.twin()
        inputs = "seq_lens last_loc free_pages"

        alloc_decode(**arena.take(inputs), page_size=page_size, out=arena["out"])

        twin["out"][:] = alloc_decode_reference(**twin.take(inputs), page_size=page_size)
        assert arena.same_as(twin)


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_decode_step_with_padded_requests(device, page_size):
    for batch in decode_batches(page_size):
        arena = Arena(
            device,
            table_of(batch),
            rows=[0 if i % 4 == 3 else row for i, row in enumerate(batch.rows)],
            seq_lens=batch.seq_lens,
            free_pages=batch.free_pages,
            out=[SENTINEL] * len(batch.rows),
        )
        twin = arena.twin()
        inputs = "rows seq_lens free_pages"

        decode_step(arena.table, **arena.take(inputs), page_size=page_size, out=arena["out"])

        twin["out"][:] = decode_step_reference(twin.table, **twin.take(inputs), page_size=page_size)
        assert arena.same_as(twin)


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_write_rows(device, page_size):
    for batch in batches(page_size):
        arena = Arena(
            device,
            table_of(batch),
            rows=batch.rows,
            prefix_lens=batch.prefix_lens,
            seq_lens=batch.seq_lens,
            out_cache_loc=range(1, batch.num_tokens + 1),
        )
        twin = arena.twin()
        inputs = "rows prefix_lens seq_lens out_cache_loc"

        write_rows(arena.table, **arena.take(inputs))

        write_rows_reference(twin.table, **twin.take(inputs))
        assert arena.same_as(twin)


@pytest.mark.parametrize("width", [1, 30])
def test_rows_as_narrow_as_their_requests(device, width):
    lens = [(width - 1, 1)] * 5
    batch = batch_of(4, lens)
    arena = Arena(
        device,
        table_of(batch, width=width),
        rows=batch.rows,
        prefix_lens=batch.prefix_lens,
        seq_lens=batch.seq_lens,
        free_pages=batch.free_pages,
    )
    twin = arena.twin()

    slots = decode_step(arena.table, **arena.take("rows seq_lens free_pages"), page_size=4)
    write_rows(arena.table, **arena.take("rows prefix_lens seq_lens"), out_cache_loc=slots + 1)

    slots = decode_step_reference(twin.table, **twin.take("rows seq_lens free_pages"), page_size=4)
    write_rows_reference(
        twin.table, **twin.take("rows prefix_lens seq_lens"), out_cache_loc=slots + 1
    )
    assert arena.same_as(twin)


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("num_pages", [0, 1, 5, 70])
def test_unmap_pages(device, page_size, num_pages):
    num_slots = (num_pages + 3) * page_size
    swa_slots = [slot + 5 * page_size if slot // page_size % 3 else 0 for slot in range(num_slots)]
    arena = Arena(
        device,
        full_pages=range(num_pages, 0, -1),
        full_to_swa=[*swa_slots, -1],
        out=[SENTINEL] * num_pages,
    )
    twin = arena.twin()

    unmap_pages(arena["full_pages"], arena["full_to_swa"], page_size, out=arena["out"])

    twin["out"][:] = unmap_pages_reference(twin["full_pages"], twin["full_to_swa"], page_size)
    assert arena.same_as(twin)


@pytest.mark.parametrize("page_size", [1, 16])
def test_programs_that_own_several_tiles(device, page_size, monkeypatch):
    monkeypatch.setattr("kvplan.kernels.alloc_extend.MAX_PROGRAMS", 2)
    monkeypatch.setattr("kvplan.kernels.alloc_decode.MAX_PROGRAMS", 2)
    monkeypatch.setattr("kvplan.kernels.decode_step.MAX_PROGRAMS", 2)
    monkeypatch.setattr("kvplan.kernels.write_rows.MAX_PROGRAMS", 2)

    test_extend(device, page_size)
    test_write_rows(device, page_size)
    lens = [(i % 40, 1) for i in range(2600)]
    batch = batch_of(page_size, lens)
    arena = Arena(
        device,
        table_of(batch),
        rows=batch.rows,
        seq_lens=batch.seq_lens,
        last_loc=batch.last_loc,
        free_pages=batch.free_pages,
    )
    stepped = decode_step(
        arena.table, **arena.take("rows seq_lens free_pages"), page_size=page_size
    )
    decoded = alloc_decode(**arena.take("seq_lens last_loc free_pages"), page_size=page_size)

    inputs = arena.twin().take("seq_lens last_loc free_pages")
    expected = alloc_decode_reference(**inputs, page_size=page_size)
    assert stepped.tolist() == decoded.tolist() == expected.tolist()


def test_a_free_list_that_is_too_short_is_not_read_past(device):
    batch = batch_of(4, [(0, 9), (3, 6)])
    arena = Arena(
        device,
        table_of(batch),
        rows=batch.rows,
        prefix_lens=batch.prefix_lens,
        seq_lens=batch.seq_lens,
        last_loc=batch.last_loc,
        free_pages=batch.free_pages[:2],
    )
    inputs = "prefix_lens seq_lens last_loc free_pages"

    slots = alloc_extend(**arena.take(inputs), page_size=4, num_tokens=15)
    arena["seq_lens"][:] = 1
    short = arena["free_pages"][:1]
    decoded = alloc_decode(arena["seq_lens"], arena["last_loc"], short, 4)
    stepped = decode_step(arena.table, arena["rows"], arena["seq_lens"], short, 4)

    first, second = batch.free_pages[:2]
    own = [first * 4 + i for i in range(4)] + [second * 4 + i for i in range(4)]
    assert slots.tolist() == [*own, 0, batch.last_loc[1] + 1, 0, 1, 2, 3, 0]
    assert decoded.tolist() == stepped.tolist() == [first * 4, 0]
