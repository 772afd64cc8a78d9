"""The interface that every allocator answers, whatever its policy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Protocol

from torch import Tensor

from kvplan.allocators.demand import Demand, decode_demand, demand_of, on_host
from kvplan.errors import PoolError
from kvplan.units import ceil_page

Segment = tuple[Tensor, int]


class Evictable(Protocol):
    """A prefix cache that can give unlocked tokens back to its allocator."""

    def evict(self, num_tokens: int) -> int:
        """Free at least `num_tokens` tokens as far as they are unlocked; how many went."""
        ...


class SlidingEvictable(Protocol):
    """A prefix cache over a full and a sliding pool."""

    def evict(self, num_tokens: int, swa_num_tokens: int) -> object:
        """Free that many tokens of each side as far as they are unlocked."""
        ...


class Allocator(ABC):
    """Hands out token slots of a pool and takes them back.

    Slots are int64 vectors. `None` is a refusal for lack of room: what is owned and the counts
    stay as they were. Misuse is a `PoolError` that names the slot or request; it changes nothing.
    """

    page_size: int

    @property
    @abstractmethod
    def size(self) -> int:
        """Tokens that an empty pool can hand out."""

    @abstractmethod
    def available_size(self) -> int:
        """Tokens that can be handed out now, staged ones counted."""

    @abstractmethod
    def alloc(self, need_size: int) -> Tensor | None:
        """Slots (need_size,) of whole pages."""

    def alloc_extend(
        self,
        prefix_lens: Tensor,
        seq_lens: Tensor,
        last_loc: Tensor,
        *,
        prefix_lens_cpu: Tensor | None = None,
        seq_lens_cpu: Tensor | None = None,
    ) -> Tensor | None:
        """Slots of positions prefix_len .. seq_len - 1 of each request, in batch order.

        All three vectors are (batch,) int64; `last_loc` is the slot of the last prefix token, -1
        without one. Lengths on a device need their host copies.
        """
        demand = demand_of(prefix_lens, seq_lens, prefix_lens_cpu, seq_lens_cpu, self.page_size)
        return self.try_extend(prefix_lens, seq_lens, last_loc, demand)

    def alloc_decode(
        self, seq_lens: Tensor, last_loc: Tensor, *, seq_lens_cpu: Tensor | None = None
    ) -> Tensor | None:
        """Slots (batch,) of one new token per request, counted in `seq_lens` already."""
        demand = decode_demand(on_host(seq_lens, seq_lens_cpu, "seq_lens"), self.page_size)
        return self.try_decode(seq_lens, last_loc, demand)

    @abstractmethod
    def try_extend(
        self, prefix_lens: Tensor, seq_lens: Tensor, last_loc: Tensor, demand: Demand
    ) -> Tensor | None:
        """`alloc_extend` of a batch whose demand is counted."""

    @abstractmethod
    def try_decode(self, seq_lens: Tensor, last_loc: Tensor, demand: Demand) -> Tensor | None:
        """`alloc_decode` of a batch whose demand is counted."""

    @abstractmethod
    def free(self, index: Tensor) -> None:
        """Give back the pages of any slots; several slots of a page are one page."""

    @abstractmethod
    def free_page_ids(self, page_ids: Tensor) -> None:
        """Give back exactly these pages, none of them twice, in this order."""

    @abstractmethod
    def free_group_begin(self) -> None:
        """Collect what is freed from here on."""

    @abstractmethod
    def free_group_end(self) -> None:
        """Release what the group collected: slots first, then segments and pages."""

    @abstractmethod
    def merge_and_sort_free(self) -> None:
        """Sort the staged pages into the free list."""

    @abstractmethod
    def clear(self) -> None:
        """Take everything back; an open free group is dropped."""

    @abstractmethod
    def verify_accounting(self) -> list[str]:
        """What is wrong with the books, one sentence each; [] when they are sound."""

    def free_segment(self, index: Tensor, *, start_pos: int) -> None:
        """Give back positions `start_pos ..` of one request's row; the last page goes whole."""
        check_segment_start(start_pos, self.page_size)
        self.free(index)

    def free_segments(self, segments: Sequence[Segment]) -> None:
        """Give back several (slots, start_pos) segments of one row, no page in two of them."""
        check_disjoint(segments, self.page_size)
        for index, start_pos in segments:
            self.free_segment(index, start_pos=start_pos)

    def free_full(self, index: Tensor) -> None:
        """Give back slots whose sliding part went before; without a sliding side a plain free."""
        self.free(index)

    def free_full_segment(self, index: Tensor, *, start_pos: int) -> None:
        """`free_segment` of slots whose sliding part went before."""
        self.free_segment(index, start_pos=start_pos)

    def request_slot_reserve(self, *, holds_row: bool, prefill_tokens: int = 0) -> int:  # noqa: ARG002
        """Tokens a request needs beyond its prefill; `holds_row` is a chunked prefill going on."""
        return 0

    def max_new_tokens_for_memory(
        self, input_tokens: int, max_new_tokens: int, *, token_capacity: int
    ) -> int | None:
        """Answer length that an empty pool of `token_capacity` holds; None: not even the prompt."""
        room = token_capacity - ceil_page(input_tokens, self.page_size) - self.page_size - 1
        return max(0, min(max_new_tokens, room))

    def prealloc_fits(
        self,
        full_tokens: int,
        swa_tokens: int = 0,
        *,
        full_budget_tokens: int,
        swa_budget_tokens: int | None = None,
    ) -> bool:
        """Whether a decode node can pre-allocate this much within the budgets of its scheduler."""
        return full_tokens <= full_budget_tokens and (
            swa_budget_tokens is None or swa_tokens <= swa_budget_tokens
        )

    def prealloc_ceiling_fits(self, full_tokens: int, swa_tokens: int = 0) -> bool | None:  # noqa: ARG002
        """Whether an empty pool could ever hold this much; None: the token capacity says it all."""
        return None

    def evict_to_free_tokens(self, cache: Evictable | None, num_tokens: int) -> bool:
        """Evict from the prefix cache until `num_tokens` are available; whether they are."""
        while cache is not None and (shortfall := num_tokens - self.available_size()) > 0:
            if not cache.evict(max(shortfall, self.page_size)):
                break
        return self.available_size() >= num_tokens

    def check_decode_capacity(self, cache: Evictable | None, num_tokens: int) -> bool:
        """Whether the next decode step's `num_tokens` fit after evicting: else something retracts."""
        return self.evict_to_free_tokens(cache, num_tokens)


def check_segment_start(start_pos: int, page_size: int) -> None:
    """Refuse a segment that starts within a page."""
    if start_pos < 0 or start_pos % page_size:
        raise PoolError(
            f"a segment starts at position {start_pos}, within a page of {page_size}",
            hint="segments start on a page",
        )


def check_disjoint(segments: Iterable[Segment], page_size: int) -> None:
    """Refuse segments of one row that share a page or stand out of order."""
    end = 0
    for index, start_pos in segments:
        check_segment_start(start_pos, page_size)
        if index.numel() and start_pos < ceil_page(end, page_size):
            raise PoolError(
                f"the segment at position {start_pos} shares a page with the one that ends at {end}",
                hint="free the two as one segment",
            )
        end = start_pos + index.numel() if index.numel() else end
