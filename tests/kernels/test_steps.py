"""Long runs of extends, decodes and frees: the device's rows and slots stay those of the reference."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from kvplan.kernels.alloc_extend import alloc_extend, alloc_extend_reference
from kvplan.kernels.decode_step import decode_step, decode_step_reference
from kvplan.kernels.write_rows import write_rows, write_rows_reference

NUM_ROWS, WIDTH, NUM_STEPS = 24, 400, {"cpu": 40, "cuda": 10_000}


def vector(values: list[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)


class Twins:
    """One pool kept twice: by the references on the CPU and by the kernels on a device."""

    def __init__(self, device: str, page_size: int) -> None:
        self.device, self.page_size = device, page_size
        self.table = torch.zeros((NUM_ROWS + 1, WIDTH), dtype=torch.int32)
        self.device_table = self.table.to(device)
        self.free_pages = torch.randperm(NUM_ROWS * (WIDTH // page_size + 1)) + 1
        self.seq_lens = dict.fromkeys(range(1, NUM_ROWS + 1), 0)

    def pages_of(self, row: int) -> int:
        return -(-self.seq_lens[row] // self.page_size)

    def extend(self, rows: list[int], new: list[int]) -> bool:
        prefix_lens = [self.seq_lens[row] for row in rows]
        seq_lens = [held + tokens for held, tokens in zip(prefix_lens, new, strict=True)]
        last_loc = [
            int(self.table[row, held - 1]) if held else -1
            for row, held in zip(rows, prefix_lens, strict=True)
        ]
        lens: dict[str, Any] = {"prefix_lens": vector(prefix_lens), "seq_lens": vector(seq_lens)}
        pages: dict[str, Any] = {"last_loc": vector(last_loc), "free_pages": self.free_pages}
        device_lens, device_pages = self._on_device(lens), self._on_device(pages)

        expected = alloc_extend_reference(**lens, **pages, page_size=self.page_size)
        slots = alloc_extend(
            **device_lens, **device_pages, page_size=self.page_size, num_tokens=sum(new)
        )
        write_rows_reference(self.table, vector(rows), **lens, out_cache_loc=expected)
        device_rows = vector(rows).to(self.device)
        write_rows(self.device_table, device_rows, **device_lens, out_cache_loc=slots)

        self._take(rows, seq_lens)
        return torch.equal(slots.cpu(), expected)

    def decode(self, rows: list[int], padding: int) -> bool:
        seq_lens = [self.seq_lens[row] + 1 for row in rows]
        inputs: dict[str, Any] = {
            "rows": vector(rows + [0] * padding),
            "seq_lens": vector(seq_lens + [1] * padding),
            "free_pages": self.free_pages,
        }

        expected = decode_step_reference(self.table, **inputs, page_size=self.page_size)
        slots = decode_step(self.device_table, **self._on_device(inputs), page_size=self.page_size)

        self._take(rows, seq_lens)
        return torch.equal(slots.cpu(), expected)

    def _on_device(self, inputs: dict[str, Tensor]) -> dict[str, Any]:
        return {name: tensor.to(self.device) for name, tensor in inputs.items()}

    def _take(self, rows: list[int], seq_lens: list[int]) -> None:
        held = sum(self.pages_of(row) for row in rows)
        self.seq_lens |= zip(rows, seq_lens, strict=True)
        self.free_pages = self.free_pages[sum(self.pages_of(row) for row in rows) - held :]

    def free(self, row: int) -> None:
        pages = self.table[row, : self.seq_lens[row] : self.page_size].long() // self.page_size
        self.free_pages = torch.cat([self.free_pages, pages])
        self.seq_lens[row] = 0


@pytest.mark.parametrize("page_size", [1, 16, 30])
def test_random_steps(device, page_size):
    rng = random.Random(page_size)
    twins = Twins(device, page_size)

    for step in range(NUM_STEPS[device]):
        for row, seq_len in list(twins.seq_lens.items()):
            if seq_len > WIDTH - 45:
                twins.free(row)
        idle = [row for row, seq_len in twins.seq_lens.items() if seq_len == 0]
        busy = [row for row, seq_len in twins.seq_lens.items() if seq_len > 0]
        if busy and rng.random() < 0.7:
            rows = rng.sample(busy, rng.randrange(1, len(busy) + 1))
            equal = twins.decode(rows, padding=rng.randrange(4))
        else:
            rows = rng.sample(idle + busy, rng.randrange(1, NUM_ROWS + 1))
            equal = twins.extend(rows, [rng.randrange(45) for _ in rows])
        assert equal, f"step {step}"

    assert torch.equal(twins.device_table.cpu(), twins.table)
    assert len(twins.free_pages.unique()) == len(twins.free_pages)
