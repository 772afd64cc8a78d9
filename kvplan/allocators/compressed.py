"""DeepSeek-V4: compressed pools that follow the pages of a full and a sliding side."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kvplan.allocators.backend import Backend
from kvplan.allocators.sliding import SlidingAllocator
from kvplan.errors import PoolError

RATIOS = (4, 128)


class CompressedAllocator(SlidingAllocator):
    """A compressed pool needs no free list: its page is the full page, `ratio` times smaller.

    A block of `ratio` tokens has its one compressed slot at full slot // ratio, written when the
    block's last token comes. What a block lacks meanwhile waits in rings of state: per sliding
    page (ratio 4) or per request row (ratio 128).
    """

    def __init__(
        self,
        size: int,
        size_swa: int,
        page_size: int = 256,
        *,
        ratios: Sequence[int] = RATIOS,
        window_ring: int = 8,
        row_ring: int = 128,
        device: torch.device | str = "cpu",
        need_sort: bool = False,
        backend: Backend | str = Backend.REFERENCE,
        checks: bool | None = None,
    ) -> None:
        """`window_ring` state entries a sliding page, `row_ring` a request row (twice that with drafts)."""
        for ratio in ratios:
            if ratio < 1 or page_size % ratio:
                raise PoolError(
                    f"a page of {page_size} tokens is no whole number of blocks of {ratio}",
                    hint="DeepSeek-V4 runs with pages of 256",
                )
        if window_ring < 1 or row_ring < 1:
            raise PoolError(f"state rings of {window_ring} and {row_ring} entries")
        self.ratios = tuple(ratios)
        self.window_ring = window_ring
        self.row_ring = row_ring
        super().__init__(
            size,
            size_swa,
            page_size,
            device=device,
            need_sort=need_sort,
            backend=backend,
            checks=checks,
        )

    def pool_sizes(self) -> dict[str, int]:
        """Slots of each pool without its padding page: full, swa, and c4, c128 by ratio."""
        compressed = {f"c{ratio}": self.full.size // ratio for ratio in self.ratios}
        return {"full": self.full.size, "swa": self.swa.size} | compressed

    def compressed_page_size(self, ratio: int) -> int:
        """Compressed slots of a page."""
        self._refuse_ratio(ratio)
        return self.page_size // ratio

    def compressed_slots(self, slots: Tensor, ratio: int) -> Tensor:
        """Compressed slots that these full slots complete, (num_blocks,): one per block's last token."""
        self._refuse_ratio(ratio)
        return slots[(slots + 1) % ratio == 0] // ratio

    def compressed_last_loc(self, last_loc: Tensor, ratio: int) -> Tensor:
        """Compressed slot of the last whole block up to each last_loc; -1 stays -1."""
        self._refuse_ratio(ratio)
        return (last_loc - (ratio - 1)) // ratio

    def window_state_slots(self, swa_slots: Tensor) -> Tensor:
        """State entries of sliding slots, in the ring of their page; -1 stays -1."""
        entries = swa_slots // self.page_size * self.window_ring + swa_slots % self.window_ring
        return entries.masked_fill(swa_slots < 0, -1)

    def row_state_slots(self, rows: Tensor, positions: Tensor) -> Tensor:
        """State entries of positions, in the ring of their request row; -1 for a negative position."""
        entries = rows * self.row_ring + positions % self.row_ring
        return entries.masked_fill(positions < 0, -1)

    def _refuse_ratio(self, ratio: int) -> None:
        if ratio not in self.ratios:
            raise PoolError(
                f"no pool is compressed by {ratio}",
                hint=f"the ratios are {', '.join(map(str, self.ratios))}",
            )
