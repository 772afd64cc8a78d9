"""One byte buffer for several sub-pools: what still fits, and who moves to make room."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

from kvplan.allocators.band import Band, BandSpec, Move, check_band
from kvplan.errors import PoolError
from kvplan.units import ceil_div

Mover = Callable[[Move], None]
Pages = Mapping[str, int]


class Placement(NamedTuple):
    """Where a band would lie: its base and how many positions it spans."""

    base: int
    span: int


class SharedBuffer:
    """Bands in order of address: all grow upwards but the last, which grows down from the end.

    The first band starts behind the padding pages; a band in the middle starts where the one
    below ends and moves when that one needs room. A demand fits when it fits after compaction;
    pages move only when the gaps as they are do not hold it.
    """

    def __init__(
        self,
        specs: list[BandSpec],
        total_bytes: int,
        *,
        device: torch.device,
        move: Mover | None = None,
    ) -> None:
        """`specs` from the lowest address to the highest; `move` copies the bytes of moved pages."""
        for spec in specs:
            check_band(spec)
        self.total_bytes = total_bytes
        self.device = device
        self._move = move
        self.padding_bytes = max(spec.page_bytes for spec in specs)
        if total_bytes < self.padding_bytes:
            raise PoolError(
                f"a buffer of {total_bytes} bytes does not hold the padding page",
                hint=f"that one needs {self.padding_bytes} bytes",
            )
        self._low = specs[0].name
        self._high = specs[-1].name
        # sliding pages answer to the full pool's virtual ids: every band can address them all
        most = max(total_bytes // spec.page_bytes for spec in specs)
        self.bands = {
            spec.name: Band(
                spec,
                num_pages=total_bytes // spec.page_bytes,
                num_virtual=most,
                base=0,
                step=-1 if spec.name == self._high else 1,
                device=device,
            )
            for spec in specs
        }
        self.clear()

    def clear(self) -> None:
        """Unbind every page of every band."""
        for name, placement in self._place(dict.fromkeys(self.bands, 0)).items():
            self.bands[name].clear(placement.base)

    def fits(self, demand: Pages, *, empty: bool = False) -> bool:
        """Whether `demand` more pages fit, compacted if need be (into an empty buffer if `empty`)."""
        pages = {
            name: demand.get(name, 0) + (0 if empty else band.num_live)
            for name, band in self.bands.items()
        }
        return self._is_disjoint(self._place(pages))

    def make_room(self, demand: Pages) -> bool:
        """Whether the demand fits; moves pages where the gaps as they are do not hold it."""
        if not self.fits(demand):
            return False
        self._rebase_empty(demand)
        as_they_are = {
            name: Placement(band.base, band.span + band.growth(demand.get(name, 0)))
            for name, band in self.bands.items()
        }
        if not self._is_disjoint(as_they_are):
            self.compact(demand)
        return True

    def compact(self, demand: Pages | None = None) -> int:
        """Close all holes, leaving room for `demand`; how many pages moved."""
        pages = {
            name: band.num_live + (demand or {}).get(name, 0) for name, band in self.bands.items()
        }
        placed = self._place(pages)
        moved = 0
        # the ends withdraw first, so that the middle finds its new place free
        ends = [self._low, self._high]
        for name in [*ends, *(name for name in self.bands if name not in ends)]:
            move = self.bands[name].compact(placed[name].base)
            if move is not None:
                moved += move.source.numel()
                if self._move is not None:
                    self._move(move)
        return moved

    def most(self, *names: str, limit: int, empty: bool = False) -> int:
        """Most pages, up to `limit`, that each of the named bands can take at once."""
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            if self.fits(dict.fromkeys(names, middle), empty=empty):
                low = middle
            else:
                high = middle - 1
        return low

    def verify_accounting(self) -> list[str]:
        """What is wrong with the bands; [] when they are sound and apart."""
        found = [text for band in self.bands.values() for text in band.verify_accounting()]
        lying = {name: Placement(band.base, band.span) for name, band in self.bands.items()}
        if not self._is_disjoint(lying):
            found.append("the sub-pools overlap in the shared buffer")
        return found

    def _place(self, pages: Pages) -> dict[str, Placement]:
        """Where the bands lie when each holds so many pages without holes."""
        placed = {}
        end = self.padding_bytes
        for name, band in self.bands.items():
            if band.step < 0:
                placed[name] = Placement(band.num_pages - 1, pages[name])
                continue
            placed[name] = Placement(ceil_div(end, band.page_bytes), pages[name])
            if pages[name]:
                end = band.byte_range(*placed[name])[1]
        return placed

    def _is_disjoint(self, placed: Mapping[str, Placement]) -> bool:
        end = self.padding_bytes
        for name, placement in placed.items():
            if not placement.span:
                continue
            low, high = self.bands[name].byte_range(*placement)
            if low < end or high > self.total_bytes:
                return False
            end = high
        return True

    def _rebase_empty(self, demand: Pages) -> None:
        """Let an empty band in the middle start right behind what lies below it."""
        end = self.padding_bytes
        for name, band in self.bands.items():
            if band.step < 0:
                return
            if not band.span:
                band.base = ceil_div(end, band.page_bytes)
            span = band.span + band.growth(demand.get(name, 0))
            if span:
                end = band.byte_range(band.base, span)[1]
