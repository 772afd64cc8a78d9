"""The audit of a replay: every page, row and mapping, every so many steps and at the end."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from kvplan.allocators.sliding import SlidingAllocator
from kvplan.replay import checks
from kvplan.replay.checks import Broken
from kvplan.replay.outcome import ReserveUse
from kvplan.replay.pools.books import Books
from kvplan.replay.pools.memory import PoolMemory
from kvplan.replay.pools.plan_states import StateBooks
from kvplan.replay.pools.watched import (
    Growth,
    Ints,
    Tenancy,
    WatchedMemory,
    Watcher,
    first_repeated,
    on_host,
)
from kvplan.replay.prefix_cache import Node
from kvplan.replay.replay import Replay, Turn
from kvplan.units import ceil_div


class Auditor(Watcher):
    """Compares the allocator, the rows and the prefix tree with the books.

    It looks on a replay as an observer: every `every` steps it raises what it finds as Broken.
    Without a replay there is no tree, and only the books say who owns what.
    """

    def __init__(
        self, memory: WatchedMemory, books: Books, every: int, states: StateBooks | None = None
    ) -> None:
        self.num_audits = 0
        self._states = states
        self._memory = memory
        self._books = books
        self._every = every
        self._steps = 0
        self._root: Node | None = None
        rows = memory.inner.rows
        self._reached = np.zeros(rows.num_rows + 1, dtype=np.int64)  # positions with slots
        self._opened = np.zeros(rows.num_rows + 1, dtype=np.int64)
        self._first_generations = rows.req_generation.numpy().copy()

    @property
    def num_pages(self) -> int:
        """Pages that are audited, those of the sliding side included."""
        books = self._books
        return len(books.owner) - 1 + len(books.peer_taken) - 1

    def attach(self, run: Replay, total: int | None) -> None:  # noqa: ARG002
        """A replay whose prefix tree holds slots, too."""
        self._root = run.store.cache.root

    def see(self, turn: Turn) -> None:
        """Audit if it is time."""
        self._steps += turn.num_steps
        if self._every and self._steps >= self._every:
            self._steps = 0
            self.audit()

    def opened(self, tenancy: Tenancy, prefix: list[Tensor]) -> None:
        row = tenancy.sequence.row
        self._opened[row] += 1
        self._reached[row] = sum(len(slots) for slots in prefix)

    def grown(self, growth: Growth) -> None:
        self._reached[growth.rows] = growth.stops

    def audit(self) -> None:
        """Everything at once; Broken for the first thing that is wrong."""
        self.num_audits += 1
        for found in self.findings():
            raise found

    def findings(self) -> Iterator[Broken]:
        """What is wrong, the books' disagreements first: they name requests."""
        inner = self._memory.inner
        allocator = inner.allocator
        if isinstance(allocator, SlidingAllocator):
            free = allocator.full.free_pages(), allocator.swa.free_pages()
            yield from self._books.findings(*free)
        else:
            yield from self._books.findings(allocator.free_pages())
        if self._root is not None:
            yield from self._holders(self._root)
            yield from self._state_holders(self._root)
        for text in (*allocator.verify_accounting(), *inner.rows.verify_accounting()):
            yield Broken(checks.LISTS, text)
        yield from self._generations(inner)

    def _generations(self, memory: PoolMemory) -> Iterator[Broken]:
        """Each row's generation went up once for each of its tenants."""
        generations = memory.rows.req_generation.numpy()
        wrong = np.flatnonzero(generations - self._first_generations != self._opened)
        for row in wrong[:1].tolist():
            tenancy = self._memory.tenancies.get(row)
            yield Broken(
                checks.LISTS,
                f"row {row} had {self._opened[row]} tenants and its generation went up by"
                f" {generations[row] - self._first_generations[row]}",
                request=None if tenancy is None else tenancy.name,
            )

    def _holders(self, root: Node) -> Iterator[Broken]:
        """Whoever owns a page has it in its row or in the tree, and nobody else has."""
        books, page_size = self._books, self._memory.page_size
        in_tree = np.zeros(len(books.owner), dtype=bool)
        for pages in self._tree_pages(root):
            before = np.flatnonzero(in_tree[pages])
            at = int(before[0]) if len(before) else first_repeated(pages)
            if at is not None:
                page = int(pages[at])
                yield self._broken(page, f"page {page} stands twice in the prefix tree")
            in_tree[pages] = True
        held = in_tree.copy()
        for tenancy in self._memory.tenancies.values():
            pages = self._row_pages(tenancy)
            own = pages[~in_tree[pages]]
            foreign = own[books.owner[own] != tenancy.number]
            for page in foreign[:1]:
                yield Broken(
                    checks.OWNERS,
                    f"its row has page {page}, which is owned by request '{books.holder(int(page))}'",
                    request=tenancy.name,
                    slot=int(page) * page_size,
                )
            held[own] = True
        yield from self._unheld(held)

    def _state_holders(self, root: Node) -> Iterator[Broken]:
        """State slots of live requests and of the tree; the rows' maps follow them."""
        if self._states is None:
            return
        held = [int(node.state[0]) for node in nodes_below(root) if node.state is not None]
        for tenancy in self._memory.tenancies.values():
            held += [int(slots[0]) for slots in tenancy.sequence.states]
            self._states.memory.map_states(tenancy.sequence)
        yield from self._states.findings(held)

    def _unheld(self, held: NDArray[np.bool_]) -> Iterator[Broken]:
        """Pages that are owned and in no row or node, or the other way round."""
        owned = self._books.owner != 0
        for page in np.flatnonzero(owned & ~held)[:1]:
            yield self._broken(int(page), f"page {page} is owned, but in no row and no tree node")
        for page in np.flatnonzero(held & ~owned)[:1]:
            yield self._broken(int(page), f"page {page} is in a row or the tree, but not owned")

    def _broken(self, page: int, text: str) -> Broken:
        slot = page * self._memory.page_size
        return Broken(checks.OWNERS, text, request=self._books.last_holder(page), slot=slot)

    def _row_pages(self, tenancy: Tenancy) -> Ints:
        row, page_size = tenancy.sequence.row, self._memory.page_size
        num_pages = ceil_div(int(self._reached[row]), page_size)
        table = self._memory.inner.rows.req_to_token
        return on_host(table[row, : num_pages * page_size : page_size].long()) // page_size

    def _tree_pages(self, root: Node) -> Iterator[Ints]:
        """Pages of each node of the prefix tree."""
        for node in nodes_below(root):
            yield on_host(node.slots[:: self._memory.page_size]) // self._memory.page_size


def nodes_below(root: Node) -> Iterator[Node]:
    """Every node of a prefix tree."""
    waiting = list(root.children.values())
    while waiting:
        node = waiting.pop()
        waiting += node.children.values()
        yield node


class ReserveRule(Watcher):
    """No request takes more in a decode step than its reserve; how long the rows became.

    A reserve ends on a page, so a step may take up to a page less one token beyond it. The memory
    itself refuses rows that are too long, before it writes to them.
    """

    def __init__(self, reserve_len: int, page_size: int, row_width: int) -> None:
        self.most_in_step = 0
        self.longest_row = 0
        self.most_allowed = reserve_len + page_size - 1
        self.row_width = row_width

    def use(self) -> ReserveUse:
        """What was seen so far."""
        return ReserveUse(
            most_in_step=self.most_in_step,
            most_allowed=self.most_allowed,
            longest_row=self.longest_row,
            row_width=self.row_width,
        )

    def grown(self, growth: Growth) -> None:
        self.longest_row = max(self.longest_row, int(growth.stops.max()))
        if growth.kind == "extend":
            return
        most = 1 if growth.kind == "decode" else int(growth.counts.max())
        if most > self.most_in_step:
            self.most_in_step = most
            if most > self.most_allowed:
                self._refuse(growth, most)

    def _refuse(self, growth: Growth, most: int) -> None:
        at = int(np.flatnonzero(growth.counts == most)[0])
        raise Broken(
            checks.RESERVE,
            f"it takes {most:,} tokens in one step of {self.most_allowed:,} at most",
            request=growth.tenancies[at].name,
            slot=int(growth.slots[np.cumsum(growth.counts)[at] - 1]),
        )
