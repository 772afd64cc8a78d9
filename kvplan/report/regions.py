"""Which bytes of a tensor keep a token: one row, or pieces of a tile, a page or a ring."""

from __future__ import annotations

import math
from typing import NamedTuple

from kvplan.sizing.compressed import SCALE_BYTES as LATENT_SCALE_BYTES
from kvplan.sizing.compressed import ring_slots
from kvplan.sizing.kv_tensors import INDEX_PAGE, TILED_SCALES_PAGE
from kvplan.sizing.layout import INDEX_BLOCK, MXFP8_BLOCK, ROPE_BYTES
from kvplan.sizing.resolved import Resolved
from kvplan.sizing.tensor import DTYPE_BYTES, TensorPlan
from kvplan.spec.model import Compressed, Mla, ModelSpec

NATIVE_TOKENS = 4  # tokens whose V scales the native nvfp4 layout interleaves
INDEX_SCALE_BYTES = 4


class Region(NamedTuple):
    """Bytes from the start of a tensor: `length` at `offset`, and again for each repeat.

    A repeat is (how often, bytes from one to the next), the outermost first.
    """

    what: str
    offset: int
    length: int
    repeats: tuple[tuple[int, int], ...] = ()

    @property
    def num_bytes(self) -> int:
        """Bytes of all pieces together."""
        return self.length * math.prod(count for count, _ in self.repeats)


def row_bytes(tensor: TensorPlan, axis: int = 0) -> int:
    """Bytes of what follows the leading axes of a dense tensor."""
    return math.prod(tensor.shape[axis + 1 :]) * DTYPE_BYTES[tensor.dtype]


def whole_row(tensor: TensorPlan, row: int) -> Region:
    """One entry along the first axis."""
    length = row_bytes(tensor)
    return Region(tensor.name, row * length, length)


def layer_row(tensor: TensorPlan, layer_index: int, row: int) -> Region:
    """One entry along the second axis of a tensor that stacks layers along its first."""
    length = row_bytes(tensor, axis=1)
    return Region(tensor.name, (layer_index * tensor.shape[1] + row) * length, length)


def slot_regions(
    tensor: TensorPlan, slot: int, model: ModelSpec, page_size: int
) -> tuple[Region, ...]:
    """Where a KV tensor keeps a slot; `slot` counts what the tensor's own rows count."""
    if not tensor.shape[0]:
        return ()
    if tensor.name == "index_key":
        return index_key_regions(tensor, slot, index_head_dim(model))
    if tensor.name.endswith("native_scale"):
        return (native_scales(tensor, slot),)
    if tensor.name.endswith("_scale") and len(tensor.shape) == 5:
        return (tiled_scales(tensor, slot),)
    if tensor.name == "latent" and model.compressed is not None:
        return packed_page_regions(tensor, slot, model.compressed, page_size)
    if tensor.name == "latent" and isinstance(model.attention, Mla):
        return latent_regions(tensor, slot, model.attention)
    return (whole_row(tensor, slot),)


def index_head_dim(model: ModelSpec) -> int:
    """Values of one index key."""
    if model.compressed is not None:
        return model.compressed.index_head_dim
    assert model.indexer is not None
    return model.indexer.head_dim


def index_key_regions(tensor: TensorPlan, key: int, head_dim: int) -> tuple[Region, ...]:
    """A page of 64 keys holds all their values, then all their scales."""
    page, offset = divmod(key, INDEX_PAGE)
    start, scale = page * row_bytes(tensor), head_dim // INDEX_BLOCK * INDEX_SCALE_BYTES
    return (
        Region("index key", start + offset * head_dim, head_dim),
        Region("index key scale", start + INDEX_PAGE * head_dim + offset * scale, scale),
    )


def tiled_scales(tensor: TensorPlan, slot: int) -> Region:
    """MXFP8 scales at page size 128: (pages, heads, 32, 4, blocks), a token at [o % 32, o // 32]."""
    _, heads, rows, columns, blocks = tensor.shape
    page, offset = divmod(slot, TILED_SCALES_PAGE)
    head_bytes = rows * columns * blocks
    row, column = offset % MXFP8_BLOCK, offset // MXFP8_BLOCK
    start = page * heads * head_bytes + (row * columns + column) * blocks
    return Region(tensor.name, start, blocks, ((heads, head_bytes),))


def native_scales(tensor: TensorPlan, slot: int) -> Region:
    """nvfp4 scales (pages, heads, page, blocks); those of V interleave four tokens."""
    _, heads, page_size, blocks = tensor.shape
    page, token = divmod(slot, page_size)
    head_bytes = page_size * blocks
    start = page * heads * head_bytes
    if tensor.name.startswith("k"):
        return Region(tensor.name, start + token * blocks, blocks, ((heads, head_bytes),))
    group, lane = token // NATIVE_TOKENS * NATIVE_TOKENS, token % NATIVE_TOKENS
    repeats = ((heads, head_bytes), (blocks, NATIVE_TOKENS))
    return Region(tensor.name, start + group * blocks + lane, 1, repeats)


def packed_page_regions(
    tensor: TensorPlan, slot: int, compressed: Compressed, page_size: int
) -> tuple[Region, ...]:
    """DeepSeek-V4: a page holds its tokens' fp8 values and bf16 rope parts, then their scales.

    Uniform rows are fp8 all along.
    """
    page, offset = divmod(slot, page_size)
    if tensor.dtype == "float8_e4m3fn":
        width = row_bytes(tensor) // page_size
        return (Region("latent", slot * width, width),)
    values, rope = compressed.qk_nope_head_dim, compressed.qk_rope_head_dim * ROPE_BYTES
    start = page * row_bytes(tensor)
    data, scales = start + offset * (values + rope), start + page_size * (values + rope)
    return (
        Region("latent values", data, values),
        Region("latent rope", data + values, rope),
        Region("latent scales", scales + offset * LATENT_SCALE_BYTES, LATENT_SCALE_BYTES),
    )


def latent_regions(tensor: TensorPlan, slot: int, attention: Mla) -> tuple[Region, ...]:
    """A latent row; packed DSA rows are fp8 values, their scales and a bf16 rope part."""
    row, rank = whole_row(tensor, slot), attention.kv_lora_rank
    scales = rank // INDEX_BLOCK * INDEX_SCALE_BYTES
    rope = attention.qk_rope_head_dim * ROPE_BYTES
    if tensor.dtype != "uint8" or not scales or row.length != rank + scales + rope:
        return (row,)
    return (
        Region("latent values", row.offset, rank),
        Region("latent scales", row.offset + rank, scales),
        Region("latent rope", row.offset + rank + scales, rope),
    )


def window_ring_slot(resolved: Resolved, sliding_slot: int) -> int:
    """Ratio 4 keeps a ring a sliding page."""
    ring = ring_slots(resolved, 4)
    return sliding_slot // resolved.page_size * ring + sliding_slot % ring


def row_ring_slot(resolved: Resolved, row: int, position: int, ratio: int) -> int:
    """Ratio 128 keeps a ring a request row, and ratio 4 too where the window does."""
    ring = ring_slots(resolved, ratio)
    return row * ring + position % ring
