"""Pages of one logical space striped over ranks: a free list a rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kvplan.allocators.base import Allocator
from kvplan.allocators.demand import Demand, check_token_count, demand_of, on_host
from kvplan.allocators.free_list import FreeList
from kvplan.allocators.group import FreeGroup, joined, refuse_closed, refuse_nested
from kvplan.allocators.ledger import FREE, OWNED, SLOTS_LEAVING, Ledger
from kvplan.allocators.paged import ledger_violations, list_violations, page_count
from kvplan.allocators.paging import check_ids, slots_of
from kvplan.allocators.room import room_for
from kvplan.errors import PoolError
from kvplan.kernels.paging import page_of
from kvplan.units import ceil_div


class Draw(NamedTuple):
    """The pages that one request takes, going round the classes."""

    base: int
    first_class: int
    num_pages: int

    def needs(self, shard_size: int) -> list[int]:
        """Pages of each class."""
        rounds, rest = divmod(self.num_pages, shard_size)
        return [
            rounds + ((rank - self.first_class) % shard_size < rest) for rank in range(shard_size)
        ]


class InterleavedAllocator(Allocator):
    """Logical page l belongs to rank l % shard_size and is that rank's page l // shard_size.

    The pages of a chain go round the ranks: position page p of a chain with rotation base b is of
    class (b + p) % shard_size, and a new chain starts at the least full class. Logical pages
    0 .. shard_size - 1 are the ranks' padding pages. What is reported as available is what the
    tightest class allows.
    """

    group: FreeGroup | None

    def __init__(
        self,
        rank_size: int,
        page_size: int,
        *,
        shard_size: int,
        device: torch.device | str = "cpu",
        need_sort: bool = False,
        checks: bool | None = None,
    ) -> None:
        if shard_size < 2:
            raise PoolError(
                f"pages striped over {shard_size} ranks", hint="one rank takes the paged allocator"
            )
        self.page_size = page_size
        self.shard_size = shard_size
        self.device = torch.device(device)
        self.need_sort = need_sort
        self.checks = self.device.type == "cpu" if checks is None else checks
        self.resize(rank_size)

    @property
    def size(self) -> int:
        return self.shard_size * self.pages_per_rank * self.page_size

    def resize(self, rank_size: int) -> None:
        """Start afresh with another number of tokens a rank."""
        self._start(page_count(rank_size, self.page_size))

    def clear(self) -> None:
        self._start(self.pages_per_rank)

    def class_counts(self) -> list[int]:
        """Free pages of each rank."""
        return [free_list.num_free for free_list in self.classes]

    def available_size(self) -> int:
        return self.shard_size * min(self.class_counts()) * self.page_size

    def aggregate_available_size(self) -> int:
        """Free tokens of all ranks together: for the books, not for admission."""
        return sum(self.class_counts()) * self.page_size

    def merge_and_sort_free(self) -> None:
        for free_list in self.classes:
            free_list.merge_and_sort()

    def alloc(self, need_size: int) -> Tensor | None:
        raise PoolError(
            f"{need_size} tokens without a chain: interleaved pages follow their chain's rotation",
            hint="use alloc_extend with rotation bases, or alloc_cyclic",
        )

    def try_extend(
        self,
        prefix_lens: Tensor,  # noqa: ARG002
        seq_lens: Tensor,  # noqa: ARG002
        last_loc: Tensor,  # noqa: ARG002
        demand: Demand,
    ) -> Tensor | None:
        raise PoolError(
            f"no rotation bases for a batch of {demand.batch}",
            hint="one a request, None where a chain starts",
        )

    def try_decode(
        self,
        seq_lens: Tensor,  # noqa: ARG002
        last_loc: Tensor,  # noqa: ARG002
        demand: Demand,
    ) -> Tensor | None:
        raise PoolError(
            f"{demand.batch} requests decode on interleaved pages, which only prefill",
            hint="use alloc_extend with rotation bases",
        )

    def alloc_extend(
        self,
        prefix_lens: Tensor,
        seq_lens: Tensor,
        last_loc: Tensor,
        *,
        prefix_lens_cpu: Tensor | None = None,
        seq_lens_cpu: Tensor | None = None,
        rotation_bases: list[int | None] | None = None,
    ) -> Tensor | None:
        """As everywhere, from whole pages on; `rotation_bases` has one entry a request.

        None starts a new chain; on success the list holds the bases that were used.
        """
        demand = demand_of(prefix_lens, seq_lens, prefix_lens_cpu, seq_lens_cpu, self.page_size)
        if rotation_bases is None:
            return self.try_extend(prefix_lens, seq_lens, last_loc, demand)
        if len(rotation_bases) != demand.batch:
            raise PoolError(
                f"{len(rotation_bases)} rotation bases for a batch of {demand.batch}",
                hint="one a request, None where a chain starts",
            )
        prefixes = on_host(prefix_lens, prefix_lens_cpu, "prefix_lens").tolist()
        lens = on_host(seq_lens, seq_lens_cpu, "seq_lens").tolist()
        draws = self._plan(prefixes, lens, rotation_bases)
        self._refuse_phase(last_loc, prefix_lens, draws)
        needs = [
            sum(column)
            for column in zip(*(draw.needs(self.shard_size) for draw in draws), strict=True)
        ]
        if any(need > free for need, free in zip(needs, self.class_counts(), strict=False)):
            return None
        if any(need > len(pages) for need, pages in zip(needs, self.classes, strict=False)):
            self.merge_and_sort_free()
        rotation_bases[:] = [draw.base for draw in draws]
        slots = [
            self._take(draw)[: seq_len - prefix_len]
            for draw, prefix_len, seq_len in zip(draws, prefixes, lens, strict=True)
        ]
        return torch.cat(slots) if slots else last_loc.new_empty(0)

    def alloc_cyclic(self, first_class: int, need_size: int) -> Tensor | None:
        """Whole pages of one chain whose owners go round from `first_class`."""
        check_token_count(need_size, self.page_size)
        if not need_size:
            return torch.empty(0, dtype=torch.int64, device=self.device)
        lens = torch.tensor([need_size])
        none = torch.zeros_like(lens)
        return self.alloc_extend(none, lens, none - 1, rotation_bases=[first_class])

    def free(self, index: Tensor) -> None:
        check_ids("index", index)
        if self.ledger is not None and index.numel():
            self.ledger.refuse_slots(index, leaving=self.group is not None)
        self._free_pages(torch.unique(page_of(index, self.page_size)))

    def free_page_ids(self, page_ids: Tensor) -> None:
        """Give back exactly these pages; each rank's go back ascending."""
        check_ids("page_ids", page_ids)
        if self.ledger is not None and page_ids.numel():
            self.ledger.refuse_pages(page_ids)
        self._free_pages(page_ids.sort().values)

    def free_group_begin(self) -> None:
        refuse_nested(self.group)
        self.group = FreeGroup()

    def free_group_end(self) -> None:
        group, self.group = refuse_closed(self.group), None
        if (pages := joined(group.slots)) is not None:
            self._release(torch.unique(pages))

    def free_pages(self) -> Tensor:
        """Every free page: the classes' lists in order, then what each has staged."""
        return torch.cat(
            [pages.listed() for pages in self.classes] + [pages.staged() for pages in self.classes]
        )

    def verify_accounting(self) -> list[str]:
        num_pages = self.shard_size * self.pages_per_rank
        pages = self.free_pages()
        found = list_violations(pages, self.shard_size, num_pages)
        for rank, free_list in enumerate(self.classes):
            foreign = free_list.ids()[free_list.ids() % self.shard_size != rank].tolist()
            found += [f"page {page} stands in the list of rank {rank}" for page in foreign]
        if not found and self.ledger is not None:
            found += ledger_violations(pages, self.ledger, in_group=self.group is not None)
        return found

    def _plan(
        self, prefixes: Sequence[int], lens: Sequence[int], bases: Sequence[int | None]
    ) -> list[Draw]:
        """What each request draws, each new chain seeing what those before it take."""
        counts = self.class_counts()
        draws = []
        for request, (prefix_len, seq_len, base) in enumerate(
            zip(prefixes, lens, bases, strict=True)
        ):
            if prefix_len % self.page_size or seq_len == prefix_len:
                raise PoolError(
                    f"request {request} of the batch extends from {prefix_len} to {seq_len} tokens",
                    hint=f"interleaved extends start on a page of {self.page_size} and take one",
                )
            if base is None:
                base = counts.index(max(counts))
            position_page = prefix_len // self.page_size
            draw = Draw(
                base,
                (base + position_page) % self.shard_size,
                ceil_div(seq_len, self.page_size) - position_page,
            )
            counts = [a - b for a, b in zip(counts, draw.needs(self.shard_size), strict=True)]
            draws.append(draw)
        return draws

    def _refuse_phase(self, last_loc: Tensor, prefix_lens: Tensor, draws: Sequence[Draw]) -> None:
        """Refuse a rotation base that does not continue the chain which last_loc ends."""
        if self.ledger is None:
            return
        self.ledger.refuse_open_pages(last_loc, prefix_lens)
        owners = (last_loc // self.page_size % self.shard_size).tolist()
        for request, (owner, draw) in enumerate(zip(owners, draws, strict=True)):
            if int(prefix_lens[request]) and (owner + 1) % self.shard_size != draw.first_class:
                raise PoolError(
                    f"request {request} of the batch goes on at rank {draw.first_class}, "
                    f"but its last page is rank {owner}'s",
                    hint=f"rotation base {draw.base} is not the one its chain began with",
                )

    def _take(self, draw: Draw) -> Tensor:
        """The slots of a draw's pages in order of position."""
        pages = torch.empty(draw.num_pages, dtype=torch.int64, device=self.device)
        for rank, need in enumerate(draw.needs(self.shard_size)):
            if need:
                start = (rank - draw.first_class) % self.shard_size
                pages[start :: self.shard_size] = self.classes[rank].take(need)
        self._mark(pages, OWNED)
        return slots_of(pages, self.page_size).reshape(-1)

    def _start(self, pages_per_rank: int) -> None:
        """All pages free, no group open; where the device has no room all stays as it was."""
        num_ranks = self.shard_size
        num_pages = num_ranks * pages_per_rank
        with room_for(f"{num_pages} pages", self.device):
            local_pages = torch.arange(1, pages_per_rank + 1, device=self.device)
            classes = [FreeList(local_pages * num_ranks + rank) for rank in range(num_ranks)]
            ledger = (
                Ledger(num_pages, self.page_size, self.device, first_page=num_ranks)
                if self.checks
                else None
            )
        self.pages_per_rank, self.classes, self.ledger = pages_per_rank, classes, ledger
        self.group = None

    def _free_pages(self, pages: Tensor) -> None:
        """Release pages, ascending and none twice, now or with the open group."""
        if self.group is None:
            self._release(pages)
        else:
            self.group.add_slots(pages)
            self._mark(pages, SLOTS_LEAVING)

    def _release(self, pages: Tensor) -> None:
        for rank, free_list in enumerate(self.classes):
            freed = pages[pages % self.shard_size == rank]
            if self.need_sort:
                free_list.stage(freed, first=True)
            else:
                free_list.put_front(freed)
        self._mark(pages, FREE)

    def _mark(self, pages: Tensor, state: int) -> None:
        if self.ledger is not None:
            self.ledger.mark(pages, state)
