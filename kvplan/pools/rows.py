"""Request rows: where each position of a running request has its slot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from kvplan.errors import PoolError
from kvplan.pools.base import PoolTensor
from kvplan.pools.storage import Storage


class RowHolder(Protocol):
    """What the pool reads and writes of a request."""

    row: int | None
    allocated_tokens: int


class AuxiliaryState(Protocol):
    """State beside the rows, freed and cleared with them."""

    def free(self, row: int) -> None: ...

    def clear(self) -> None: ...


class RequestRows:
    """`req_to_token` int32 (rows + 1, max_context_len); row 0 is the padding row, never handed out.

    Free rows are popped from the tail. `req_generation[row]` goes up each time the row is handed
    out and is never reset: a late reader sees by it that a row changed its owner. On a decode
    node `pre_alloc_rows` rows more hold requests whose KV is still on its way.
    """

    def __init__(
        self,
        size: int,
        max_context_len: int,
        *,
        storage: Storage,
        pre_alloc_rows: int = 0,
    ) -> None:
        if min(size, max_context_len, pre_alloc_rows) < 0:
            raise PoolError(
                f"{size} + {pre_alloc_rows} request rows of {max_context_len} tokens",
                hint="0 or more of each",
            )
        self.size = size
        self.pre_alloc_rows = pre_alloc_rows
        self.num_rows = size + pre_alloc_rows
        self.max_context_len = max_context_len
        self.storage = storage
        self.req_to_token = storage.zeros((self.num_rows + 1, max_context_len), torch.int32)
        self.req_generation = torch.zeros(self.num_rows + 1, dtype=torch.int64)  # on the host
        self.on_alloc_rows: Callable[[list[int]], None] | None = None
        self.auxiliary: AuxiliaryState | None = None
        self._take_all_back()

    def available_size(self) -> int:
        """Rows that can be handed out."""
        return len(self.free_list)

    def alloc(self, requests: Sequence[RowHolder]) -> list[int] | None:
        """A row for each request; one that holds a row already (chunked prefill) keeps it.

        None when too few are free: no request then gets one.
        """
        for request in requests:
            if request.row is not None and request.allocated_tokens <= 0:
                raise PoolError(
                    f"a request keeps row {request.row} but owns no KV",
                    hint="only a chunked prefill going on keeps its row",
                )
        fresh = [request for request in requests if request.row is None]
        rows = self.alloc_rows(len(fresh))
        if rows is None:
            return None
        for request, row in zip(fresh, rows, strict=True):
            request.row = row
        return [request.row for request in requests if request.row is not None]

    def alloc_rows(self, need_size: int) -> list[int] | None:
        """Rows without a request, as beams take them; None when too few are free."""
        if need_size < 0:
            raise PoolError(f"cannot allocate {need_size} rows", hint="ask for 0 or more")
        if need_size > len(self.free_list):
            return None
        # a slice from -0 would be the whole list
        start = len(self.free_list) - need_size
        rows = self.free_list[start:]
        del self.free_list[start:]
        self._handed_out.update(rows)
        self.req_generation[rows] += 1
        if self.on_alloc_rows is not None and rows:
            self.on_alloc_rows(rows)
        return rows

    def free_rows(self, rows: Sequence[int]) -> None:
        """Give rows back with their auxiliary state; the last one goes out next."""
        self._refuse_foreign(rows)
        self._handed_out.difference_update(rows)
        if self.auxiliary is not None:
            for row in rows:
                self.auxiliary.free(row)
        self.free_list.extend(rows)

    def free(self, request: RowHolder) -> None:
        """Take a request's row back."""
        if request.row is None:
            raise PoolError("a request without a row is freed", hint="free it once")
        self.free_rows([request.row])
        request.row = None

    def write(self, rows: Tensor, positions: Tensor, slots: Tensor) -> None:
        """Set req_to_token[row, position] = slot, elementwise over (num_tokens,) vectors."""
        self.req_to_token[rows, positions] = slots.to(torch.int32)

    def clear(self) -> None:
        """Take every row back; generations stay."""
        self._take_all_back()
        if self.auxiliary is not None:
            self.auxiliary.clear()

    def tensors(self) -> list[PoolTensor]:
        """Every tensor of the rows."""
        return [
            PoolTensor("req_to_token", (), self.req_to_token, is_view=False),
            PoolTensor("req_generation", (), self.req_generation, is_view=False),
        ]

    def verify_accounting(self) -> list[str]:
        """What is wrong with the books; [] when they are sound."""
        free = set(self.free_list)
        found = []
        if len(free) != len(self.free_list):
            found.append("a row stands twice in the free list")
        found += [f"row {row} is free and handed out at once" for row in free & self._handed_out]
        lost = set(range(1, self.num_rows + 1)) - free - self._handed_out
        found += [f"row {row} is neither free nor handed out" for row in sorted(lost)]
        return found

    def _take_all_back(self) -> None:
        self.free_list = list(range(1, self.num_rows + 1))
        self._handed_out: set[int] = set()

    def _refuse_foreign(self, rows: Sequence[int]) -> None:
        for row in rows:
            if row == 0:
                raise PoolError("row 0 is the padding row and is never freed")
            if row not in self._handed_out:
                raise PoolError(
                    f"row {row} is freed twice: it is not handed out",
                    hint=f"rows are 1 to {self.num_rows}, each freed once",
                )
        if len(set(rows)) != len(rows):
            raise PoolError(f"a row stands twice in {list(rows)}", hint="free each row once")
