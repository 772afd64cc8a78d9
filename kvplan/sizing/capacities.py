"""What sizing finds for each kind of pool, in tokens and slots."""

from __future__ import annotations

import msgspec

from kvplan.units import ceil_div


class TwoPools(msgspec.Struct, frozen=True):
    """Tokens of the full and the sliding pool."""

    full_tokens: int
    sliding_tokens: int
    mode: str  # ratio, request cap, all sliding


class CompressedPools(msgspec.Struct, frozen=True):
    """Tokens of the full, sliding and compressed pools, and slots of the c4 state."""

    full_tokens: int
    sliding_tokens: int
    c4_tokens: int
    c128_tokens: int
    c4_state_slots: int


class StatePool(msgspec.Struct, frozen=True):
    """`max_mamba_cache_size` slots and what they take, all in bytes of one rank."""

    slots: int
    slot_bytes: int  # what the engine budgets a slot: the largest stage's share of the layers
    slots_per_request: int
    snapshot_requests: int  # running requests whose verify steps keep snapshots; 0 without
    draft_tokens: int
    rest_gib: float  # what is left for KV
    origin: str


class HostPool(msgspec.Struct, frozen=True):
    """Slots of one host pool in tokens (or states), and its bytes."""

    pool: str
    size: int
    page_size: int
    bytes_per_token: int

    @property
    def num_bytes(self) -> int:
        return self.size * self.bytes_per_token


class UnifiedBuffer(msgspec.Struct, frozen=True):
    """The buffer in bytes, an entry of each side, and what each side could hold alone.

    An entry is a token over all layers of its side, or a state slot. The split moves at run time.
    """

    total_bytes: int
    page_size: int
    full_entry: int
    other_entry: int
    slides: bool  # the other side is sliding KV; else state slots
    reserved_bytes: int  # the padding pages at the low end
    full_capacity: int  # tokens
    other_capacity: int  # tokens, or state slots

    @property
    def table_entries(self) -> tuple[int, int]:
        """int64 entries of the page tables both ways, and of the free virtual pages."""
        page, other_page = self.page_size, self.page_size if self.slides else 1
        full_pages = self.total_bytes // self.full_entry // page
        other_pages = self.total_bytes // self.other_entry // other_page
        virtual = full_pages if self.slides else other_pages
        free = full_pages - self.padding_pages(self.full_entry, page)
        if not self.slides:  # state slots have virtual ids of their own
            free += other_pages - self.padding_pages(self.other_entry, 1)
        return 2 * (full_pages + 1) + virtual + 1 + other_pages + 1, free

    def padding_pages(self, entry: int, page: int) -> int:
        """First pages of a side that the reserved bytes cover."""
        return ceil_div(ceil_div(self.reserved_bytes, entry), page)


Split = TwoPools | CompressedPools | int  # an int: the tokens of the one pool
