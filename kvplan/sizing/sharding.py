"""KV cache sharding: the scratch that prefixes are gathered into, and a rank's share of a token space."""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.sizing.cell import latent_bytes
from kvplan.sizing.kv_tensors import STORE_DTYPES
from kvplan.sizing.layout import index_key_bytes, mha_bytes
from kvplan.sizing.plan import StagePlan
from kvplan.sizing.stage import Stage
from kvplan.sizing.tensor import TensorPlan
from kvplan.spec.model import Mha
from kvplan.units import ceil_page

GATHERED_CONTEXTS = 8  # full-context prefixes that one batch may gather
HALVES = 2  # one is read while the next layer's is gathered


def scratch_rows(stage: Stage) -> int:
    """Tokens of one half: prefixes in spans of all ranks, a batch's new tokens, a page of trash."""
    resolved = stage.resolved
    page = resolved.page_size
    context = ceil_page(resolved.context_length, page * resolved.kv_shards)
    return GATHERED_CONTEXTS * context + ceil_page(resolved.chunked_prefill_size, page) + page


def scratch_row_bytes(stage: Stage) -> int:
    """One token of one layer, its index key included."""
    attention = stage.model.attention
    if isinstance(attention, Mha):
        dims = attention.head_dim + attention.v_head_dim
        return mha_bytes(stage.kv_heads, dims, stage.resolved.kv_cache_dtype)
    indexer = stage.model.indexer
    key = index_key_bytes(indexer.head_dim, 1) if indexer is not None else 0
    return latent_bytes(stage, attention) + key


def num_pools(stage: Stage) -> int:
    """The target's pool, and its draft's beside it."""
    return 2 if stage.resolved.speculation.algorithm is not None else 1


def scratch_bytes(stage: Stage) -> int:
    """What gathering takes before any token: both halves of every pool."""
    return num_pools(stage) * HALVES * scratch_rows(stage) * scratch_row_bytes(stage)


def scratch_tensors(stage: Stage) -> Iterator[TensorPlan]:
    """K and V, or latents and index keys, of one layer, twice a pool."""
    rows, copies = scratch_rows(stage), HALVES * num_pools(stage)
    attention, resolved = stage.model.attention, stage.resolved
    dtype = STORE_DTYPES.get(resolved.kv_cache_dtype, resolved.kv_cache_dtype)
    if isinstance(attention, Mha):
        for name, dim in (("k", attention.head_dim), ("v", attention.v_head_dim)):
            yield TensorPlan("scratch", name, copies, (rows, stage.kv_heads, dim), dtype)
        return
    element = 1 if dtype == "uint8" else 2
    width = latent_bytes(stage, attention) // element
    yield TensorPlan("scratch", "latent", copies, (rows, 1, width), dtype)
    indexer, page = stage.model.indexer, resolved.page_size
    if indexer is not None:
        row = page * index_key_bytes(indexer.head_dim, 1)
        yield TensorPlan("scratch", "index_key", copies, (rows // page, row), "uint8")


def page_positions(planned: StagePlan) -> int:
    """Entries of the table from logical pages to scratch pages."""
    resolved = planned.stage.resolved
    pages = planned.pool.tokens // resolved.page_size
    return num_pools(planned.stage) * resolved.kv_shards * (pages + 2)
