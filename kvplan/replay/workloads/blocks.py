"""Hash counts against prompt lengths: which block sizes fit, and the trap of reading with another."""

from __future__ import annotations

from kvplan.replay.requests import BlockIds
from kvplan.replay.workloads.rows import HASH_COUNT, BadRow
from kvplan.units import ceil_div

# sizes in use, for naming the one that was meant
USUAL_SIZES = tuple(1 << power for power in range(12))
NO_LIMIT = 1 << 62


class Sizes:
    """The block sizes that fit everything seen so far: `low .. high`, empty where low > high."""

    def __init__(self, low: int = 1, high: int = NO_LIMIT) -> None:
        self.low = low
        self.high = high

    def narrow(self, other: Sizes) -> None:
        """Keep only what also fits `other`."""
        self.low = max(self.low, other.low)
        self.high = min(self.high, other.high)

    def usual(self) -> int | None:
        """The smallest size in use among them, a power of two up to 2048."""
        return next((size for size in USUAL_SIZES if self.low <= size <= self.high), None)

    def __contains__(self, size: int) -> bool:
        return self.low <= size <= self.high

    def describe(self) -> str:
        """The sizes in words: `512`, `342 to 511`, `1024 or more`."""
        if self.usual() is not None:
            return str(self.usual())
        if self.low > self.high:
            return "none"
        if self.high == NO_LIMIT:
            return f"{self.low} or more"
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"


def sizes_by_ceil(input_len: int, num_ids: int) -> Sizes:
    """Block sizes for which the ids cover the whole prompt, the last one perhaps in part."""
    if num_ids < 1:
        return Sizes(1, 0) if input_len else Sizes()
    high = NO_LIMIT if num_ids == 1 else (input_len - 1) // (num_ids - 1)
    return Sizes(ceil_div(input_len, num_ids) or 1, high)


def sizes_by_floor(input_len: int, num_ids: int) -> Sizes:
    """Block sizes for which the ids cover the prompt's whole blocks and leave the tail out."""
    high = input_len // num_ids if num_ids else NO_LIMIT
    return Sizes(input_len // (num_ids + 1) + 1, high)


def covering(ids: tuple[int, ...], input_len: int, block_size: int) -> BlockIds | None:
    """Identity of a prompt whose ids cover all of it (ceil); BadRow naming the size that fits."""
    if len(ids) != ceil_div(input_len, block_size):
        raise hash_count(ids, input_len, block_size, sizes_by_ceil(input_len, len(ids)))
    return BlockIds(ids=ids, block_size=block_size) if ids else None


def leading(
    ids: tuple[int, ...], input_len: int, block_size: int, namespace: str = ""
) -> BlockIds | None:
    """Identity of a prompt whose ids cover its whole blocks (floor); BadRow naming the size that fits."""
    if len(ids) != input_len // block_size:
        raise hash_count(ids, input_len, block_size, sizes_by_floor(input_len, len(ids)))
    return BlockIds(ids=ids, block_size=block_size, namespace=namespace) if ids else None


def hash_count(ids: tuple[int, ...], input_len: int, block_size: int, fitting: Sizes) -> BadRow:
    """The refusal of a hash count, with the block sizes that would fit this row."""
    usual = fitting.usual()
    return BadRow(
        f"{len(ids)} hash ids do not fit an input of {input_len} tokens in blocks of {block_size}; "
        f"a block size that fits: {fitting.describe()}",
        reason=HASH_COUNT,
        hint=f"--block-size {usual}" if usual is not None else None,
    )
