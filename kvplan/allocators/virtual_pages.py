"""Virtual pages of a shared buffer, whose memory goes when they do."""

from __future__ import annotations

import torch
from torch import Tensor

from kvplan.allocators.backend import Backend
from kvplan.allocators.band import Band
from kvplan.allocators.paged import PagedAllocator


class VirtualPages(PagedAllocator):
    """A paged allocator of virtual ids; a released page gives its physical one back."""

    def __init__(
        self,
        band: Band,
        num_pages: int,
        page_size: int,
        *,
        device: torch.device,
        backend: Backend,
        checks: bool | None,
    ) -> None:
        self.band = band
        super().__init__(
            num_pages * page_size, page_size, device=device, backend=backend, checks=checks
        )

    def put_back(self, pages: Tensor) -> None:
        self.band.unbind(pages)
        super().put_back(pages)

    def verify_accounting(self) -> list[str]:
        found = super().verify_accounting()
        held = self.num_pages - self.free_list.num_free
        if held != self.band.num_live:
            found.append(f"{held} virtual pages are out, {self.band.num_live} have memory")
        return found
