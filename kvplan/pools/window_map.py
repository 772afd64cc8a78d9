"""Which sliding slot each full slot has, as the sliding allocator keeps it."""

from __future__ import annotations

import torch

from kvplan.errors import PoolError


class WindowMap:
    """The allocator's table full slot -> sliding slot: 0 is unmapped, the last entry is -1."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self._table: torch.Tensor | None = None

    def register(self, table: torch.Tensor) -> None:
        """Take the table; it is read live, never copied."""
        self._table = table

    def translate(self, slots: torch.Tensor) -> torch.Tensor:
        """Sliding slots of full slots: 0 where the window has left them, -1 for -1."""
        if self._table is None:
            raise PoolError(
                "the sliding slots are unknown: no mapping is registered",
                hint="call register_mapping with the allocator's full_to_swa table",
            )
        return self._table[slots]

    def page_pairs(
        self, source: torch.Tensor, target: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Sliding pages of both ends of a page copy; unmapped ends become page 0 on both sides.

        The padding page is then copied onto itself, which needs no device sync to filter out.
        """
        ends = [
            self.translate(pages * self.page_size) // self.page_size for pages in (source, target)
        ]
        mapped = (ends[0] > 0) & (ends[1] > 0)
        return ends[0] * mapped, ends[1] * mapped
