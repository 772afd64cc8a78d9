"""What only a CUDA device can show: graph capture, no sync, one compile per page size."""

from __future__ import annotations

import random

import pytest
import torch

from kvplan.kernels.alloc_decode import alloc_decode
from kvplan.kernels.alloc_extend import alloc_extend
from kvplan.kernels.compiled import compile_counts
from kvplan.kernels.decode_step import decode_step, decode_step_reference
from kvplan.kernels.unmap_pages import unmap_pages
from kvplan.kernels.write_rows import write_rows

pytestmark = pytest.mark.gpu

NUM_ROWS, WIDTH, BATCH = 64, 512, 48


@pytest.mark.parametrize("page_size", [1, 16, 30])
def test_a_captured_decode_step_replays_with_any_number_of_padded_requests(cuda, page_size):
    rng = random.Random(page_size)
    table = torch.zeros((NUM_ROWS + 1, WIDTH), dtype=torch.int32)
    device_table = table.to(cuda)
    rows, seq_lens, head, out = (
        torch.zeros(BATCH, dtype=torch.int64, device=cuda) for _ in range(4)
    )
    seq_lens.fill_(1)
    decode_step(device_table, rows, seq_lens, head, page_size, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        decode_step(device_table, rows, seq_lens, head, page_size, out=out)

    free_pages = torch.randperm(NUM_ROWS * WIDTH) + 1
    lens = [0] * (NUM_ROWS + 1)
    for _ in range(200):
        real = rng.sample(range(1, NUM_ROWS + 1), rng.randrange(BATCH + 1))
        real = [row for row in real if lens[row] < WIDTH]
        padding = BATCH - len(real)
        step_rows = torch.tensor(real + [0] * padding)
        step_lens = torch.tensor([lens[row] + 1 for row in real] + [1] * padding)
        rows.copy_(step_rows)
        seq_lens.copy_(step_lens)
        head.copy_(free_pages[:BATCH])
        graph.replay()
        expected = decode_step_reference(table, step_rows, step_lens, free_pages, page_size)

        assert torch.equal(out.cpu(), expected)
        assert torch.equal(device_table.cpu(), table)
        free_pages = free_pages[sum(lens[row] % page_size == 0 for row in real) :]
        for row in real:
            lens[row] += 1


def launch_all(device: str, batch: int, new: int, offset: int, page_size: int) -> None:
    """Each kernel once over batch fresh requests of new tokens each, in slices that start at offset."""
    ids = torch.arange(batch * new + batch + offset + 1, device=device)
    prefix_lens = torch.zeros(batch + offset, dtype=torch.int64, device=device)[offset:]
    rows = ids[1 : batch + 1]
    table = torch.zeros((batch + 1, new + offset), dtype=torch.int32, device=device)[:, offset:]
    mapping = torch.zeros((batch + 1) * page_size + 1, dtype=torch.int64, device=device)
    slots = alloc_extend(
        prefix_lens, prefix_lens + new, prefix_lens - 1, ids[offset:], page_size, batch * new
    )
    alloc_decode(prefix_lens + 1, prefix_lens - 1, ids[offset:], page_size)
    write_rows(table, rows, prefix_lens, prefix_lens + new, slots)
    decode_step(table, rows, prefix_lens + new, ids[offset:], page_size)
    unmap_pages(rows, mapping, page_size)


def test_one_compile_serves_every_batch_extend_length_and_slice(cuda):
    launch_all(cuda, 1, 1, 0, page_size=16)
    before = compile_counts()

    for batch, new in [(1, 1), (1, 16), (16, 1), (17, 100), (1024, 16), (8192, 3)]:
        for offset in (0, 1, 2):
            launch_all(cuda, batch, new, offset, page_size=48)

    added = {name: count - before[name] for name, count in compile_counts().items()}
    assert added == {**dict.fromkeys(before, 1), "write_rows": 0}


def test_no_launch_waits_for_the_device(cuda):
    launch_all(cuda, 4, 20, 0, page_size=16)
    torch.cuda.set_sync_debug_mode("error")
    try:
        launch_all(cuda, 4, 20, 1, page_size=16)
    finally:
        torch.cuda.set_sync_debug_mode("default")
