"""How a ragged batch is shared out among programs, so that the cost stays flat in its size.

Every program owns a span of the output. It walks over the requests in tiles, carrying the counts
of what lies before, until it has reached the end of its span. The number of programs is bounded,
so what they load in all grows linearly with the batch.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kvplan.units import ceil_div

REQUEST_TILE = 1024
TOKEN_TILE = 1024
MAX_PROGRAMS = 512

# arguments that must not lead to a second compile: sizes, strides, and pointers into slices
RUN_TIME = (
    "batch",
    "num_tokens",
    "num_pages",
    "num_free_pages",
    "span",
    "row_stride",
    "token_stride",
    "prefix_lens_ptr",
    "seq_lens_ptr",
    "last_loc_ptr",
    "rows_ptr",
    "free_pages_ptr",
    "full_pages_ptr",
    "full_to_swa_ptr",
    "req_to_token_ptr",
    "out_cache_loc_ptr",
    "swa_pages_ptr",
)


def spans(num_items: int, tile: int, max_programs: int) -> tuple[int, int]:
    """(programs, items of each): whole tiles, shared out over at most max_programs."""
    num_tiles = ceil_div(num_items, tile)
    tiles_each = ceil_div(num_tiles, max_programs)
    return ceil_div(num_tiles, tiles_each), tiles_each * tile


@triton.jit
def owner_of(ends, item, LANES: tl.constexpr):
    """How many of the ascending ends (fewer than all) an item has passed: the lane that owns it."""
    lane = item.to(tl.int32) & 0
    for halving in tl.static_range(1, 32):
        if LANES >> halving > 0:
            passed = tl.gather(ends, lane | ((LANES >> halving) - 1), 0) <= item
            lane = tl.where(passed, lane | (LANES >> halving), lane)
    return lane
