"""Stamps: each token's KV says whose it is and where, and is read back when its request ends."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import numpy as np
import torch
from torch import Tensor

from kvplan.replay import checks
from kvplan.replay.checks import Broken
from kvplan.replay.keys import BlockKey, Key, TokenKey
from kvplan.replay.pools.doors import Door
from kvplan.replay.pools.watched import Growth, Ints, Tenancy, WatchedMemory, Watcher
from kvplan.replay.runs import RunKey
from kvplan.units import floor_page


class Identities:
    """A number for what stands at each position: equal for requests that share the token."""

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._numbers: dict[Hashable, int] = {}

    def of(self, rid: str, key: Key, start: int, stop: int) -> Ints:
        """Numbers of the positions `start .. stop` of a request."""
        if isinstance(key, TokenKey | RunKey):
            return self._of_tokens(rid, key, start, stop)
        own = self._number((rid,))
        if not isinstance(key, BlockKey) or start >= key.covered:
            return np.full(stop - start, own, dtype=np.int64)
        return self._of_blocks(key, own, start, stop)

    def _of_tokens(self, rid: str, key: TokenKey | RunKey, start: int, stop: int) -> Ints:
        """Known tokens are themselves; what an answer holds beyond them is the request's own."""
        known = [self._number(token) for token in key.known(start, stop)]
        missing = stop - start - len(known)
        return np.array(known + [self._number((rid,))] * missing, dtype=np.int64)

    def _of_blocks(self, key: BlockKey, own: int, start: int, stop: int) -> Ints:
        """A page is of the block of its last token, or the request's own behind the last block."""
        page = self._page_size
        last = np.arange(start, stop) // page * page + page - 1
        first_unit = floor_page(start, page) // key.block_size
        end_unit = min(len(key.units), (stop + page) // key.block_size + 1)
        units = [
            self._number((key.namespace, key.block_size, unit))
            for unit in key.units[first_unit:end_unit]
        ]
        numbers = np.array([*units, own], dtype=np.int64)
        index = np.where(last < key.covered, last // key.block_size - first_unit, len(units))
        return numbers[np.minimum(index, len(units))]

    def _number(self, identity: Hashable) -> int:
        return self._numbers.setdefault(identity, len(self._numbers) + 1)


class Stamper(Watcher):
    """Writes a stamp through the pools' write doors for each new slot; reads all back at the end."""

    def __init__(self, memory: WatchedMemory, doors: list[Door]) -> None:
        self.num_stamped = 0
        self.num_read = 0
        self._memory = memory
        self._doors = doors
        self._identities = Identities(memory.page_size)

    def grown(self, growth: Growth) -> None:
        if not len(growth.slots):
            return
        slots = growth.device_slots
        positions = torch.from_numpy(growth.positions()).to(slots.device)
        identities = torch.from_numpy(np.concatenate(list(self._identities_of(growth))))
        identities = identities.to(slots.device)
        for door in self._doors:
            door.write(slots, identities, positions)
        self.num_stamped += len(slots)

    def _identities_of(self, growth: Growth) -> Iterator[Ints]:
        bounds = zip(growth.tenancies, growth.starts.tolist(), growth.stops.tolist(), strict=True)
        for tenancy, start, stop in bounds:
            yield self._numbers_of(tenancy, start, stop)

    def _numbers_of(self, tenancy: Tenancy, start: int, stop: int) -> Ints:
        sequence = tenancy.sequence
        return self._identities.of(sequence.rid, sequence.key, start, stop)

    def leaving(self, tenancy: Tenancy) -> None:
        """Read every token that the request keeps; Broken for the first foreign one."""
        length = tenancy.sequence.kept_len()
        slots = self._memory.inner.row_slots(tenancy.sequence, 0, length)
        positions = torch.arange(length, device=slots.device)
        identities = torch.from_numpy(self._numbers_of(tenancy, 0, length)).to(slots.device)
        for door in self._doors:
            self._compare(tenancy, door, slots, identities, positions)
        self.num_read += length

    def _compare(
        self, tenancy: Tenancy, door: Door, slots: Tensor, identities: Tensor, positions: Tensor
    ) -> None:
        intact = door.intact(slots, identities, positions)
        if bool(intact.all()):
            return
        position = int((~intact).nonzero()[0])
        raise Broken(
            checks.STAMPS,
            f"position {position} does not read back what was written for it ({door.name})",
            request=tenancy.name,
            slot=int(slots[position]),
        )
