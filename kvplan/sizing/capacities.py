"""What sizing finds for each kind of pool, in tokens and slots."""

from __future__ import annotations

import msgspec


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


Split = TwoPools | CompressedPools | int  # an int: the tokens of the one pool
