"""An ordered list of free ids in a circular buffer, with frees that wait to be sorted in."""

from __future__ import annotations

import torch
from torch import Tensor

from kvplan.errors import PoolError


class FreeList:
    """Ids taken from the head and given back at either end; giving back costs what comes back.

    Staged ids are free but wait behind the list until `merge_and_sort`.
    """

    def __init__(self, ids: Tensor) -> None:
        """`ids` (num_ids,) int64 are all the ids there are, in the order they go out."""
        self._ring = ids.clone()
        self._head = 0
        self._count = ids.numel()
        self._staged: list[Tensor] = []
        self.num_staged = 0

    def __len__(self) -> int:
        """Ids that can be taken at once, without those staged."""
        return self._count

    @property
    def num_free(self) -> int:
        """Ids in the list and staged ones."""
        return self._count + self.num_staged

    def take(self, num_ids: int) -> Tensor:
        """The first ids of the list, (num_ids,); valid until the next ids come back."""
        taken = self.peek(num_ids)
        self._head = self._wrap(self._head + num_ids)
        self._count -= num_ids
        return taken

    def peek(self, num_ids: int) -> Tensor:
        """What `take` would return."""
        assert num_ids <= self._count, "callers look at the length first"
        return self._slice(self._head, num_ids)

    def put_front(self, ids: Tensor) -> None:
        """Give ids back before the head: they go out next, in this order."""
        self._refuse_overflow(ids)
        self._head = self._wrap(self._head - ids.numel())
        self._store(self._head, ids)
        self._count += ids.numel()

    def put_back(self, ids: Tensor) -> None:
        """Give ids back behind the tail: they go out last."""
        self._refuse_overflow(ids)
        self._store(self._wrap(self._head + self._count), ids)
        self._count += ids.numel()

    def stage(self, ids: Tensor, *, first: bool = False) -> None:
        """Give ids back unsorted, behind the staged ones or before them."""
        if not ids.numel():
            return
        self._refuse_overflow(ids)
        self._staged.insert(0 if first else len(self._staged), ids.clone())
        self.num_staged += ids.numel()

    def merge_and_sort(self) -> None:
        """Sort the staged ids into the list; without staged ones the order stays."""
        if not self._staged:
            return
        merged = self.ids().sort().values
        self._staged, self.num_staged = [], 0
        self._head, self._count = 0, merged.numel()
        self._ring[: merged.numel()] = merged

    def ids(self) -> Tensor:
        """Every free id, the list in order and then the staged ones."""
        return torch.cat([self.listed(), *self._staged])

    def listed(self) -> Tensor:
        """The list in order, staged ids left out."""
        return self._slice(self._head, self._count)

    def staged(self) -> Tensor:
        """The staged ids in order."""
        return torch.cat([self._ring[:0], *self._staged])

    def _wrap(self, position: int) -> int:
        return position % len(self._ring) if len(self._ring) else 0

    def _slice(self, start: int, num_ids: int) -> Tensor:
        over = start + num_ids - len(self._ring)
        if over <= 0:
            return self._ring[start : start + num_ids]
        return torch.cat((self._ring[start:], self._ring[:over]))

    def _store(self, start: int, ids: Tensor) -> None:
        over = start + ids.numel() - len(self._ring)
        if over <= 0:
            self._ring[start : start + ids.numel()] = ids
        else:
            self._ring[start:] = ids[:-over]
            self._ring[:over] = ids[-over:]

    def _refuse_overflow(self, ids: Tensor) -> None:
        if self.num_free + ids.numel() > len(self._ring):
            raise PoolError(
                f"{ids.numel()} ids come back to a free list of {len(self._ring)} "
                f"that already holds {self.num_free}",
                hint="something was freed twice",
            )
