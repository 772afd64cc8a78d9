"""The scheduling model's memory over a real allocator and real request rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from kvplan.allocators.backend import Backend
from kvplan.allocators.paged import PagedAllocator
from kvplan.allocators.sliding import SlidingAllocator
from kvplan.errors import OutOfSlots
from kvplan.kernels.write_rows import write_rows, write_rows_reference
from kvplan.pools.rows import RequestRows
from kvplan.replay.checks import long_row
from kvplan.replay.counted import shortage
from kvplan.replay.sequence import Part
from kvplan.replay.sequence import Sequence as Request


class PoolMemory:
    """Slots are int64 tensors; each request's row holds the slot of every position."""

    def __init__(self, allocator: PagedAllocator | SlidingAllocator, rows: RequestRows) -> None:
        self.page_size = allocator.page_size
        self.allocator = allocator
        self.rows = rows
        self._device = allocator.device
        self._write = write_rows_reference if allocator.backend is Backend.REFERENCE else write_rows
        self._decoding = DecodingRows([], allocator.device)

    @property
    def available(self) -> int:
        return self.allocator.available_size()

    @property
    def free_rows(self) -> int:
        return self.rows.available_size()

    def open_row(self, sequence: Request, prefix: Sequence[Tensor]) -> None:
        taken = self.rows.alloc_rows(1)
        if taken is None:
            raise OutOfSlots(f"no row is left for request '{sequence.rid}'")
        sequence.row, sequence.filled = taken[0], 0
        self._refuse_long_row(sequence.rid, sum(len(slots) for slots in prefix))
        position = 0
        for slots in prefix:
            self.write_row(sequence, position, slots)
            position += len(slots)

    def close_row(self, sequence: Request) -> None:
        self.rows.free_rows([sequence.row])

    def extend(self, parts: Sequence[Part]) -> Tensor:
        for part in parts:
            self._refuse_long_row(part.sequence.rid, part.stop)
        table = self.rows.req_to_token
        rows = self._vector([part.sequence.row for part in parts])
        prefix_lens_cpu = torch.tensor([part.prefix_len for part in parts])
        seq_lens_cpu = torch.tensor([part.stop for part in parts])
        prefix_lens = prefix_lens_cpu.to(self._device)
        seq_lens = seq_lens_cpu.to(self._device)
        last_loc = table[rows, (prefix_lens - 1).clamp(min=0)].long()
        last_loc = torch.where(prefix_lens > 0, last_loc, -1)
        slots = self.allocator.alloc_extend(
            prefix_lens,
            seq_lens,
            last_loc,
            prefix_lens_cpu=prefix_lens_cpu,
            seq_lens_cpu=seq_lens_cpu,
        )
        if slots is None:
            raise self._shortage(prefix_lens_cpu, seq_lens_cpu)
        self._write(table, rows, prefix_lens, seq_lens, slots)
        for part in parts:
            part.sequence.filled = part.stop
        return slots

    def decode(self, sequences: Collection[Request], num_new_pages: int) -> Tensor:
        del num_new_pages  # the allocator counts them itself
        batch = self._decoding
        if batch.sequences is not sequences:
            batch = self._decoding = DecodingRows(sequences, self._device)
        batch.grow()
        if batch.longest > self.rows.max_context_len:
            whose = next(each for each in sequences if each.committed() == batch.longest)
            self._refuse_long_row(whose.rid, batch.longest)
        table = self.rows.req_to_token
        last_loc = table[batch.rows, batch.seq_lens - 2].long()
        slots = self.allocator.alloc_decode(
            batch.seq_lens, last_loc, seq_lens_cpu=batch.seq_lens_cpu
        )
        if slots is None:
            raise self._shortage(batch.seq_lens_cpu - 1, batch.seq_lens_cpu)
        table[batch.rows, batch.seq_lens - 1] = slots.to(table.dtype)
        return slots

    def reserve(self, sequences: Collection[Request], num_new_pages: int) -> Tensor:
        del num_new_pages
        return self.extend(
            [Part(each, each.filled, each.allocated(), is_middle=False) for each in sequences]
        )

    def row_slots(self, sequence: Request, start: int, stop: int) -> Tensor:
        return self.rows.req_to_token[sequence.row, start:stop].long()

    def write_row(self, sequence: Request, start: int, slots: Tensor) -> None:
        self._refuse_long_row(sequence.rid, start + len(slots))
        self.rows.req_to_token[sequence.row, start : start + len(slots)] = slots.int()

    def free(self, slots: Tensor) -> None:
        self.allocator.free_segment(slots, start_pos=0)

    def free_group_begin(self) -> None:
        self.allocator.free_group_begin()

    def free_group_end(self) -> None:
        self.allocator.free_group_end()

    def _refuse_long_row(self, rid: str, num_positions: int) -> None:
        """Broken before positions are written that would lie in another row."""
        if num_positions > self.rows.max_context_len:
            raise long_row(rid, num_positions, self.rows.max_context_len)

    def _shortage(self, allocated_lens: Tensor, seq_lens: Tensor) -> OutOfSlots:
        """The tokens of whole pages that these lengths, [batch] each, are short of."""
        page = self.page_size
        num_pages = int((-allocated_lens // page - -seq_lens // page).sum())  # as in counts
        return shortage(num_pages * page, self.available)

    def _vector(self, numbers: list[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64).to(self._device)


class DecodingRows:
    """Rows and lengths of a running batch, kept on the device from step to step."""

    def __init__(self, sequences: Collection[Request], device: torch.device) -> None:
        self.sequences = sequences
        self.rows = torch.tensor([s.row for s in sequences], dtype=torch.int64).to(device)
        # committed counts the coming token already
        self.seq_lens_cpu = torch.tensor([s.committed() - 1 for s in sequences], dtype=torch.int64)
        self.seq_lens = self.seq_lens_cpu.to(device)
        self.longest = int(self.seq_lens_cpu.max()) if len(self.rows) else 0

    def grow(self) -> None:
        """One token more for each request."""
        self.longest += 1
        self.seq_lens_cpu = self.seq_lens_cpu + 1
        if self.seq_lens.device.type == "cpu":
            self.seq_lens = self.seq_lens_cpu
        else:
            self.seq_lens = self.seq_lens + 1
