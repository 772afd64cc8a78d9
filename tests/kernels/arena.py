"""Buffers with guard bands: views into one larger tensor, so that a stray write shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

SENTINEL = -77_777
GUARD = 37  # odd: the views' alignment differs from one to the next


class Arena:
    """Named int64 vectors, and one int32 table, each with untouchable cells around it."""

    def __init__(self, device: str, table: Tensor | None = None, **vectors: Sequence[int]) -> None:
        self.spans = {}
        start = GUARD
        for name, values in vectors.items():
            self.spans[name] = slice(start, start + len(values))
            start += len(values) + GUARD
        self.cells = torch.full((start,), SENTINEL, dtype=torch.int64)
        for name, values in vectors.items():
            self.cells[self.spans[name]] = torch.as_tensor(values, dtype=torch.int64)
        self.cells = self.cells.to(device)
        num_rows, width = (0, 0) if table is None else table.shape
        self.table_cells = torch.full((num_rows + 2, 2 * width + 5), SENTINEL, dtype=torch.int32)
        if table is not None:
            self.table[:] = table
        self.table_cells = self.table_cells.to(device)

    def __getitem__(self, name: str) -> Tensor:
        return self.cells[self.spans[name]]

    def take(self, names: str) -> dict[str, Any]:
        """The views of several names, as keyword arguments."""
        return {name: self[name] for name in names.split()}

    @property
    def table(self) -> Tensor:
        """The table with every second cell untouchable, too: no stride is 1."""
        return self.table_cells[1:-1, 2:-3:2]

    def twin(self) -> Arena:
        """A copy on the CPU that shares nothing."""
        twin = Arena("cpu")
        twin.spans = self.spans
        twin.cells = self.cells.cpu().clone()
        twin.table_cells = self.table_cells.cpu().clone()
        return twin

    def same_as(self, other: Arena) -> bool:
        """Every cell of both equal, guard bands included."""
        return torch.equal(self.cells.cpu(), other.cells.cpu()) and torch.equal(
            self.table_cells.cpu(), other.table_cells.cpu()
        )
