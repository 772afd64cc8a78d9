"""The KV buffers of one stage: one page more than their size, a tensor a layer."""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.sizing.cell import packs_latents, sparse_index_dtype
from kvplan.sizing.layout import FP4_BLOCK, MXFP8_BLOCK, dsa_packed_bytes, index_key_bytes
from kvplan.sizing.plan import StagePlan
from kvplan.sizing.resolved import Resolved
from kvplan.sizing.shapes import kv_heads_per_rank
from kvplan.sizing.stage import Stage
from kvplan.sizing.tensor import TensorPlan
from kvplan.spec.model import Indexer, Mha, Mla
from kvplan.units import ceil_div

INDEX_PAGE = 64  # tokens of one physical page of index keys
TILED_SCALES_PAGE = 128  # page size whose MXFP8 scales are stored a page a row
STORE_DTYPES = {"float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}  # no index_put for fp8


def kv_tensors(planned: StagePlan) -> Iterator[TensorPlan]:
    """The target's KV of one stage, whatever its kind."""
    stage, pool = planned.stage, planned.pool
    page = stage.resolved.page_size
    if pool.unified is not None:
        from kvplan.sizing.unified_tensors import unified_tensors

        yield from unified_tensors(planned)
    elif pool.compressed is not None:
        from kvplan.sizing.compressed_tensors import compressed_tensors

        yield from compressed_tensors(planned)
    elif pool.sliding is not None:
        yield from sliding_tensors(planned)
    elif stage.model.sparse is not None:
        yield from sparse_tensors(stage, pool.tokens + page)
    elif isinstance(stage.model.attention, Mla):
        yield from mla_tensors(stage, stage.model.attention, pool.tokens + page)
    else:
        attention, layers = stage.model.attention, stage.num_kv_layers
        dims = (attention.head_dim, attention.v_head_dim)
        yield from mha_tensors(
            "kv", stage.resolved, layers, pool.tokens + page, stage.kv_heads, dims
        )


def mha_tensors(
    pool: str, resolved: Resolved, layers: int, slots: int, heads: int, dims: tuple[int, int]
) -> Iterator[TensorPlan]:
    """K and V of `layers` layers, with the scales of their recipe."""
    if not layers:
        return
    match resolved.kv_recipe:
        case "nvfp4" | "fp4_mx_block16":
            yield from fp4_tensors(pool, resolved, layers, slots, heads, dims[0])
        case "mxfp8":
            yield from mxfp8_tensors(pool, resolved, layers, slots, heads, dims)
        case _:
            yield from plain_tensors(pool, resolved.kv_cache_dtype, layers, slots, heads, dims)


def plain_tensors(
    pool: str, kv_dtype: str, layers: int, slots: int, heads: int, dims: tuple[int, int]
) -> Iterator[TensorPlan]:
    """K and V alone; fp8 is stored as uint8."""
    dtype = STORE_DTYPES.get(kv_dtype, kv_dtype)
    for name, dim in zip(("k", "v"), dims, strict=True):
        yield TensorPlan(pool, name, layers, (slots, heads, dim), dtype)


def mxfp8_tensors(
    pool: str, resolved: Resolved, layers: int, slots: int, heads: int, dims: tuple[int, int]
) -> Iterator[TensorPlan]:
    """K and V in fp8 with a scale per 32 elements, tiled at page 128."""
    for name, dim in zip(("k", "v"), dims, strict=True):
        yield TensorPlan(pool, name, layers, (slots, heads, dim), "float8_e4m3fn")
        blocks = dim // MXFP8_BLOCK
        shape: tuple[int, ...] = (slots, heads, blocks)
        if resolved.page_size == TILED_SCALES_PAGE:
            shape = (slots // TILED_SCALES_PAGE, heads, 32, 4, blocks)
        yield TensorPlan(pool, f"{name}_scale", layers, shape, "float8_e8m0fnu")


def fp4_tensors(
    pool: str, resolved: Resolved, layers: int, slots: int, heads: int, dim: int
) -> Iterator[TensorPlan]:
    """Two values a byte; the recipe says which scale layouts and workspace stand beside."""
    from kvplan.sizing.nvfp4 import nvfp4_layouts

    page, blocks = resolved.page_size, dim // FP4_BLOCK
    for name in ("k", "v"):
        yield TensorPlan(pool, name, layers, (slots, heads, dim // 2), "uint8")
        if resolved.kv_recipe == "fp4_mx_block16":
            shape = (slots, heads * dim // FP4_BLOCK)
            yield TensorPlan(pool, f"{name}_scale", layers, shape, "uint8")
            continue
        layouts = nvfp4_layouts(resolved)
        if layouts.linear:
            yield TensorPlan(pool, f"{name}_scale", layers, (slots, heads, blocks), "uint8")
        if layouts.native:
            shape4 = (slots // page, heads, page, blocks)
            yield TensorPlan(pool, f"{name}_native_scale", layers, shape4, "uint8")
        if layouts.workspace:
            yield TensorPlan(pool, f"{name}_workspace", 1, (slots, heads, dim), "float8_e4m3fn")


def latent_tensors(
    pool: str,
    resolved: Resolved,
    attention: Mla,
    layers: int,
    slots: int,
    *,
    raw_fp4: bool = False,
    packed: bool = False,
) -> Iterator[TensorPlan]:
    """One latent a layer. FP4 has a recipe but where raw_fp4 keeps a byte an element."""
    width = attention.kv_lora_rank + attention.qk_rope_head_dim
    if not layers:
        return
    if resolved.kv_cache_dtype == "float4_e2m1fn_x2" and not raw_fp4:
        yield TensorPlan(pool, "latent", layers, (slots, 1, width // 2), "uint8")
        yield TensorPlan(pool, "latent_scale", layers, (slots, width // FP4_BLOCK), "uint8")
        return
    if packed:
        width = dsa_packed_bytes(attention.kv_lora_rank, attention.qk_rope_head_dim)
    dtype = STORE_DTYPES.get(resolved.kv_cache_dtype, resolved.kv_cache_dtype)
    yield TensorPlan(pool, "latent", layers, (slots, 1, width), dtype)


def index_key_tensors(
    pool: str, indexer: Indexer, layers: int, owners: int, slots: int
) -> Iterator[TensorPlan]:
    """Keys in physical pages of 64; layers that share another layer's top-k own 0 rows."""
    pages = ceil_div(slots, INDEX_PAGE * indexer.kpool)
    row = INDEX_PAGE * index_key_bytes(indexer.head_dim, 1)
    for count, rows in ((owners, pages), (layers - owners, 0)):
        if count:
            yield TensorPlan(pool, "index_key", count, (rows, row), "uint8")


def mla_tensors(stage: Stage, attention: Mla, slots: int) -> Iterator[TensorPlan]:
    """Latents of all layers, and the index keys of those that own an indexer."""
    resolved, layers, indexer = stage.resolved, stage.num_kv_layers, stage.model.indexer
    # neither a hybrid model nor one with index keys has an FP4 pool of latents
    raw_fp4 = stage.model.linear is not None or indexer is not None
    packed = packs_latents(resolved, indexer)
    yield from latent_tensors(
        "kv", resolved, attention, layers, slots, raw_fp4=raw_fp4, packed=packed
    )
    if indexer is not None:
        owners = len(stage.layers.indexer) * stage.model.kv_layers_per_layer
        page = resolved.page_size
        every_token = (slots - page) * resolved.logical_ratio + page
        every_rank = every_token * resolved.widths.attn_dcp
        yield from index_key_tensors("kv", indexer, layers, owners, every_rank)


def sliding_tensors(planned: StagePlan) -> Iterator[TensorPlan]:
    """The full and the sliding pool; FP4 without a recipe of its own keeps a byte an element."""
    stage, pools = planned.stage, planned.pool.sliding
    sliding, attention, resolved = stage.model.sliding, stage.model.attention, stage.resolved
    assert pools is not None
    assert sliding is not None
    assert isinstance(attention, Mha)
    page, attn_tp = resolved.page_size, resolved.widths.attn_tp
    sides = (
        ("full", len(stage.layers.full), pools.full_tokens, attention),
        ("sliding", len(stage.layers.sliding), pools.sliding_tokens, sliding),
    )
    for name, layers, tokens, geometry in sides:
        heads = kv_heads_per_rank(geometry.num_kv_heads, attn_tp)
        dims = (geometry.head_dim, geometry.v_head_dim)
        slots = tokens + page
        if not layers:
            continue
        if resolved.kv_recipe == "mxfp8":
            yield from mxfp8_tensors(name, resolved, layers, slots, heads, dims)
        else:
            yield from plain_tensors(name, resolved.kv_cache_dtype, layers, slots, heads, dims)


def sparse_tensors(stage: Stage, slots: int) -> Iterator[TensorPlan]:
    """MiniMax: K and V of all layers, one index vector (or two) of the sparse ones."""
    sparse, attention, resolved = stage.model.sparse, stage.model.attention, stage.resolved
    assert sparse is not None
    assert isinstance(attention, Mha)
    dims = (attention.head_dim, attention.v_head_dim)
    local = [layer for layer in sparse.sparse_layers if layer in stage.span]
    logical = (slots - resolved.page_size) * resolved.logical_ratio + resolved.page_size
    dense = stage.num_kv_layers - len(local)
    mains: tuple[tuple[str, int, int], ...]
    mains = (("kv", stage.num_kv_layers, slots),)
    if resolved.hisparse is not None:
        mains = (("dense", dense, logical), ("kv", len(local), slots))
    for pool, layers, rows in mains:
        if layers:
            yield from plain_tensors(
                pool, resolved.kv_cache_dtype, layers, rows, stage.kv_heads, dims
            )
    k_only = sum(layer in sparse.index_k_only_layers for layer in local)
    dtype = STORE_DTYPES.get(sparse_index_dtype(stage), sparse_index_dtype(stage))
    shape = (logical, 1, sparse.index_head_dim)
    for name, count in (("index_k", len(local)), ("index_v", len(local) - k_only)):
        if count:
            yield TensorPlan("index", name, count, shape, dtype)
