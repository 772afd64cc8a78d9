"""Pages of bytes that hold all their tokens' data first and all their scales after it."""

from __future__ import annotations

import torch


class PackedLayout:
    """How one token lies in a packed page: `data_bytes`, then at the page's tail `scale_bytes`."""

    def __init__(
        self, *, page_tokens: int, data_bytes: int, scale_bytes: int, align_bytes: int = 1
    ) -> None:
        self.page_tokens = page_tokens
        self.data_bytes = data_bytes
        self.scale_bytes = scale_bytes
        used = page_tokens * (data_bytes + scale_bytes)
        self.page_bytes = -(-used // align_bytes) * align_bytes

    def data(self, pages: torch.Tensor) -> torch.Tensor:
        """View of the data of pages (rows, page_bytes): (rows, page_tokens, data_bytes)."""
        used = pages[:, : self.page_tokens * self.data_bytes]
        return used.view(len(pages), self.page_tokens, self.data_bytes)

    def scales(self, pages: torch.Tensor) -> torch.Tensor:
        """View of the scales of pages (rows, page_bytes): (rows, page_tokens, scale_bytes)."""
        start = self.page_tokens * self.data_bytes
        used = pages[:, start : start + self.page_tokens * self.scale_bytes]
        return used.view(len(pages), self.page_tokens, self.scale_bytes)

    def write(
        self, pages: torch.Tensor, slots: torch.Tensor, data: torch.Tensor, scales: torch.Tensor
    ) -> None:
        """Store data (tokens, data_bytes) and scales (tokens, scale_bytes), both uint8, at slots."""
        row, offset = slots // self.page_tokens, slots % self.page_tokens
        self.data(pages)[row, offset] = data
        self.scales(pages)[row, offset] = scales

    def read(self, pages: torch.Tensor, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Data and scale bytes of some slots."""
        row, offset = slots // self.page_tokens, slots % self.page_tokens
        return self.data(pages)[row, offset], self.scales(pages)[row, offset]


def as_bytes(values: torch.Tensor) -> torch.Tensor:
    """(tokens, n) of any dtype as (tokens, bytes) uint8."""
    return values.contiguous().view(torch.uint8)
