"""The pages of one sub-pool in a byte buffer that it shares, growing from one side."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kvplan.errors import PoolError


class BandSpec(NamedTuple):
    """A sub-pool: its name and the bytes of one of its pages (a state slot is a page)."""

    name: str
    page_bytes: int


class Move(NamedTuple):
    """Pages whose bytes must be copied within the buffer, source[i] over target[i]."""

    band: str
    source: Tensor
    target: Tensor


class Band:
    """Virtual pages bound to physical ones; physical page p is at bytes p * page_bytes.

    Page 0 of both kinds is padding, which is where whatever is unbound leads. The band fills
    positions from its base, upwards or downwards; a freed page is a hole until it is filled again
    or the band is compacted.
    """

    def __init__(
        self,
        spec: BandSpec,
        *,
        num_pages: int,
        num_virtual: int,
        base: int,
        step: int,
        device: torch.device,
    ) -> None:
        """`base` is the first physical page to be used, `step` 1 or -1."""
        self.name, self.page_bytes = spec
        self.num_pages = num_pages
        self.base, self.step = base, step
        self.device = device
        # the last entry answers for a slot of -1
        self.virtual_to_physical = torch.zeros(num_virtual + 2, dtype=torch.int64, device=device)
        self.physical_to_virtual = torch.zeros(num_pages, dtype=torch.int64, device=device)
        self.span = 0
        self.holes = self._pages(0, 0)

    @property
    def num_live(self) -> int:
        """Bound pages."""
        return self.span - self.holes.numel()

    def growth(self, num_pages: int) -> int:
        """Positions that `num_pages` more need beyond the holes."""
        return max(0, num_pages - self.holes.numel())

    def byte_range(self, base: int, span: int) -> tuple[int, int]:
        """First byte and end of `span` positions from a base."""
        low, high = (base, base + span) if self.step > 0 else (base + 1 - span, base + 1)
        return low * self.page_bytes, high * self.page_bytes

    def bind(self, virtual: Tensor) -> Tensor:
        """Bind virtual pages (num_pages,) to the physical ones nearest the base; there is room."""
        num_pages = virtual.numel()
        self.holes = self.holes.sort(descending=self.step < 0).values
        from_holes = min(num_pages, self.holes.numel())
        grown = num_pages - from_holes
        physical = torch.cat((self.holes[:from_holes], self._pages(self.span, grown)))
        self.holes = self.holes[from_holes:]
        self.span += grown
        self.virtual_to_physical[virtual] = physical
        self.physical_to_virtual[physical] = virtual
        return physical

    def unbind(self, virtual: Tensor) -> None:
        """Give the physical pages of bound virtual pages back."""
        physical = self.virtual_to_physical[virtual]
        self.virtual_to_physical[virtual] = 0
        self.physical_to_virtual[physical] = 0
        self.holes = torch.cat((self.holes, physical))
        if not self.num_live:
            self.span, self.holes = 0, self.holes[:0]

    def is_bound(self, virtual: Tensor) -> Tensor:
        """Which virtual pages have a physical one, (num_pages,) bool."""
        return self.virtual_to_physical[virtual] > 0

    def compact(self, base: int) -> Move | None:
        """Fill the positions from `base` without holes; the bytes that must move, if any do."""
        num_live = self.num_live
        live = self.physical_to_virtual.nonzero().flatten()
        self.base, self.span, self.holes = base, num_live, self.holes[:0]
        targets = self._pages(0, num_live)
        source = live[~torch.isin(live, targets)]
        target = targets[~torch.isin(targets, live)]
        if not source.numel():
            return None
        virtual = self.physical_to_virtual[source]
        self.physical_to_virtual[source] = 0
        self.physical_to_virtual[target] = virtual
        self.virtual_to_physical[virtual] = target
        return Move(self.name, source, target)

    def translate(self, slots: Tensor, page_size: int) -> Tensor:
        """Physical slots of virtual ones; what is unbound or -1 leads into the padding page."""
        pages = self.virtual_to_physical[slots // page_size]
        return pages * page_size + slots % page_size

    def clear(self, base: int) -> None:
        """Unbind everything."""
        self.virtual_to_physical.zero_()
        self.physical_to_virtual.zero_()
        self.base, self.span, self.holes = base, 0, self.holes[:0]

    def verify_accounting(self) -> list[str]:
        """What is wrong with the two tables; [] when they agree."""
        bound = self.virtual_to_physical.nonzero().flatten()
        live = self.physical_to_virtual.nonzero().flatten()
        found = []
        if bound.numel() != self.num_live or live.numel() != self.num_live:
            found.append(
                f"{self.name}: {bound.numel()} virtual and {live.numel()} physical pages bound, "
                f"{self.num_live} counted"
            )
        elif not torch.equal(self.physical_to_virtual[self.virtual_to_physical[bound]], bound):
            found.append(f"{self.name}: the virtual and physical tables disagree")
        used = torch.cat((live, self.holes)).sort().values
        if not torch.equal(used, self._pages(0, self.span).sort().values):
            found.append(
                f"{self.name}: bound pages and holes do not fill its {self.span} positions"
            )
        return found

    def _pages(self, position: int, num_pages: int) -> Tensor:
        """The physical pages of `num_pages` positions from one on."""
        first = self.base + self.step * position
        return torch.arange(
            first, first + self.step * num_pages, self.step, dtype=torch.int64, device=self.device
        )


def check_band(spec: BandSpec) -> None:
    """Refuse a sub-pool whose pages have no bytes."""
    if spec.page_bytes < 1:
        raise PoolError(f"a page of the {spec.name} pool has {spec.page_bytes} bytes")


def refuse_unbound(band: Band, pages: Tensor, page_size: int, *, hint: str) -> None:
    """Refuse virtual pages that a band gave up before."""
    gone = pages[~band.is_bound(pages)]
    if gone.numel():
        raise PoolError(
            f"page {int(gone[0])} (slot {int(gone[0]) * page_size}) "
            f"has no part in the {band.name} pool any more",
            hint=hint,
        )


def refuse_bound(band: Band, slots: Tensor, page_size: int) -> None:
    """Refuse virtual slots that a band still holds."""
    held = slots[band.is_bound(slots // page_size)]
    if held.numel():
        raise PoolError(
            f"slot {int(held[0])} still has a part in the {band.name} pool, which would be lost",
            hint="use free or free_segment, which give back both sides",
        )
