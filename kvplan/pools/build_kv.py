"""The KV pool of one planned stage, whatever its kind."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.pools.base import KvPool
from kvplan.pools.build_compressed import compressed_pool
from kvplan.pools.dsa import DsaPool, PackedMlaPool
from kvplan.pools.fp4_mha import Fp4Block16Pool
from kvplan.pools.hisparse import HisparsePool
from kvplan.pools.index_keys import IndexKeyPool
from kvplan.pools.mha import KOnlyPool, MhaPool
from kvplan.pools.mla import Fp4MlaPool, MlaPool
from kvplan.pools.mxfp8 import Mxfp8Pool
from kvplan.pools.nvfp4 import Nvfp4Pool
from kvplan.pools.sliding import SwaPool
from kvplan.pools.sparse import SparsePool
from kvplan.pools.storage import Storage, torch_dtype
from kvplan.sizing.cell import packs_latents, sparse_index_dtype
from kvplan.sizing.nvfp4 import nvfp4_layouts
from kvplan.sizing.plan import StagePlan
from kvplan.sizing.resolved import Resolved
from kvplan.sizing.shapes import kv_heads_per_rank
from kvplan.sizing.stage import Stage
from kvplan.spec.model import Indexer, Mha, Mla, Sliding

FP4 = "float4_e2m1fn_x2"


def kv_pool(planned: StagePlan, storage: Storage) -> KvPool:
    """The target's KV of one stage, as one rank holds it."""
    stage, pool = planned.stage, planned.pool
    if pool.compressed is not None:
        return compressed_pool(planned, storage)
    if pool.sliding is not None:
        return sliding_pool(planned, storage)
    if stage.model.sparse is not None:
        return sparse_pool(stage, pool.tokens, storage)
    layer_ids = kv_layers(stage.layers.full, stage.model.kv_layers_per_layer)
    if isinstance(stage.model.attention, Mla):
        return latent_pool(stage, stage.model.attention, pool.tokens, layer_ids, storage)
    return mha_pool(
        stage.resolved, stage.model.attention, stage.kv_heads, pool.tokens, layer_ids, storage
    )


def kv_layers(layer_ids: Sequence[int], per_layer: int) -> tuple[int, ...]:
    """Ids of the KV layers: layers that hold KV several times count several times."""
    return tuple(layer_id * per_layer + turn for layer_id in layer_ids for turn in range(per_layer))


def mha_pool(
    resolved: Resolved,
    attention: Mha | Sliding,
    num_heads: int,
    tokens: int,
    layer_ids: Sequence[int],
    storage: Storage,
) -> KvPool:
    """K and V in the storage of the launch's recipe."""
    page_size, head_dim = resolved.page_size, attention.head_dim
    match resolved.kv_recipe:
        case "mxfp8":
            return Mxfp8Pool(
                size=tokens,
                page_size=page_size,
                layer_ids=layer_ids,
                num_heads=num_heads,
                head_dim=head_dim,
                v_head_dim=attention.v_head_dim,
                storage=storage,
            )
        case "fp4_mx_block16":
            return Fp4Block16Pool(
                size=tokens,
                page_size=page_size,
                layer_ids=layer_ids,
                num_heads=num_heads,
                head_dim=head_dim,
                storage=storage,
            )
        case "nvfp4":
            layouts = nvfp4_layouts(resolved)
            return Nvfp4Pool(
                size=tokens,
                page_size=page_size,
                layer_ids=layer_ids,
                num_heads=num_heads,
                head_dim=head_dim,
                linear=layouts.linear,
                native=layouts.native,
                workspace=layouts.workspace and bool(layer_ids),
                storage=storage,
            )
    return plain_pool(resolved, attention, num_heads, tokens, layer_ids, storage)


def plain_pool(
    resolved: Resolved,
    attention: Mha | Sliding,
    num_heads: int,
    tokens: int,
    layer_ids: Sequence[int],
    storage: Storage,
) -> MhaPool:
    """K and V without scales, in the KV dtype."""
    return MhaPool(
        size=tokens,
        page_size=resolved.page_size,
        layer_ids=layer_ids,
        num_heads=num_heads,
        head_dim=attention.head_dim,
        v_head_dim=attention.v_head_dim,
        dtype=torch_dtype(resolved.kv_cache_dtype),
        storage=storage,
    )


def latent_pool(
    stage: Stage, attention: Mla, tokens: int, layer_ids: Sequence[int], storage: Storage
) -> KvPool:
    """Latents of the launch's storage, with index keys where the model has an indexer."""
    resolved, indexer = stage.resolved, stage.model.indexer
    if indexer is not None:
        owners = kv_layers(stage.layers.indexer, stage.model.kv_layers_per_layer)
        if resolved.hisparse is not None:
            return swapped_latents(resolved, attention, indexer, tokens, layer_ids, storage)
        ranks = resolved.widths.attn_dcp
        return dsa_pool(resolved, attention, indexer, tokens, layer_ids, owners, ranks, storage)
    # a hybrid model has no FP4 pool of latents: the engine keeps a byte an element
    recipe = resolved.kv_cache_dtype == FP4 and stage.model.linear is None
    kind = Fp4MlaPool if recipe else MlaPool
    return mla_pool(kind, resolved, attention, tokens, layer_ids, storage)


def dsa_pool(
    resolved: Resolved,
    attention: Mla,
    indexer: Indexer,
    tokens: int,
    layer_ids: Sequence[int],
    owners: Sequence[int],
    ranks: int,
    storage: Storage,
) -> DsaPool:
    """Latents, packed with their scales or raw, and index keys for the slots of all ranks."""
    kind = PackedMlaPool if packs_latents(resolved, indexer) else MlaPool
    latent = mla_pool(kind, resolved, attention, tokens, layer_ids, storage)
    keys = IndexKeyPool(
        size=latent.num_slots * ranks - latent.page_size,
        layer_ids=latent.layer_ids,
        owners=owners,
        head_dim=indexer.head_dim,
        kpool=indexer.kpool,
        storage=storage,
    )
    return DsaPool(latent, keys)


def swapped_latents(
    resolved: Resolved,
    attention: Mla,
    indexer: Indexer,
    tokens: int,
    layer_ids: Sequence[int],
    storage: Storage,
) -> HisparsePool:
    """HiSparse: latents of the device's tokens, index keys of every logical one."""
    kind = PackedMlaPool if packs_latents(resolved, indexer) else MlaPool
    keys = IndexKeyPool(
        size=tokens * resolved.logical_ratio,
        layer_ids=layer_ids,
        head_dim=indexer.head_dim,
        kpool=indexer.kpool,
        storage=storage,
    )
    device = mla_pool(kind, resolved, attention, tokens, layer_ids, storage)
    return HisparsePool(device, host_to_device_ratio=resolved.logical_ratio, index_keys=keys)


def mla_pool(
    kind: type[MlaPool],
    resolved: Resolved,
    attention: Mla,
    tokens: int,
    layer_ids: Sequence[int],
    storage: Storage,
) -> MlaPool:
    """Latents of one kind."""
    return kind(
        size=tokens,
        page_size=resolved.page_size,
        layer_ids=layer_ids,
        kv_lora_rank=attention.kv_lora_rank,
        qk_rope_head_dim=attention.qk_rope_head_dim,
        dtype=torch_dtype(resolved.kv_cache_dtype),
        storage=storage,
    )


def sliding_pool(planned: StagePlan, storage: Storage) -> KvPool:
    """The full and the sliding pool; FP4 has no recipe there and keeps a byte an element."""
    stage, pools = planned.stage, planned.pool.sliding
    resolved, sliding = stage.resolved, stage.model.sliding
    assert pools is not None
    assert sliding is not None
    assert isinstance(stage.model.attention, Mha)

    def side(attention: Mha | Sliding, tokens: int, layer_ids: Sequence[int]) -> KvPool:
        heads = kv_heads_per_rank(attention.num_kv_heads, resolved.widths.attn_tp)
        build = mha_pool if resolved.kv_recipe == "mxfp8" else plain_pool
        return build(resolved, attention, heads, tokens, layer_ids, storage)

    per_layer = stage.model.kv_layers_per_layer
    full_layers = kv_layers(stage.layers.full, per_layer)
    sliding_layers = kv_layers(stage.layers.sliding, per_layer)
    return SwaPool(
        side(stage.model.attention, pools.full_tokens, full_layers),
        side(sliding, pools.sliding_tokens, sliding_layers),
    )


def sparse_pool(stage: Stage, tokens: int, storage: Storage) -> KvPool:
    """MiniMax: plain K and V of all layers, one index of the sparse ones."""
    sparse, attention, resolved = stage.model.sparse, stage.model.attention, stage.resolved
    assert sparse is not None
    assert isinstance(attention, Mha)
    local = [layer for layer in sparse.sparse_layers if layer in stage.span]
    k_only = [layer for layer in local if layer in sparse.index_k_only_layers]
    both = [layer for layer in local if layer not in k_only]

    def index(kind: type[KOnlyPool], layer_ids: Sequence[int]) -> KOnlyPool:
        return kind(
            size=tokens * resolved.logical_ratio,
            page_size=resolved.page_size,
            layer_ids=layer_ids,
            num_heads=1,
            head_dim=sparse.index_head_dim,
            dtype=torch_dtype(sparse_index_dtype(stage)),
            storage=storage,
        )

    kinds = ((MhaPool, both), (KOnlyPool, k_only))
    indexes = tuple(index(kind, layer_ids) for kind, layer_ids in kinds if layer_ids)
    return SparsePool(mains=sparse_mains(stage, attention, tokens, local, storage), indexes=indexes)


def sparse_mains(
    stage: Stage, attention: Mha, tokens: int, sparse: Sequence[int], storage: Storage
) -> tuple[KvPool, ...]:
    """K and V of all layers; under HiSparse the sparse ones swap, the dense ones do not."""
    resolved, full = stage.resolved, stage.layers.full

    def main(size: int, layer_ids: Sequence[int]) -> MhaPool:
        return plain_pool(resolved, attention, stage.kv_heads, size, layer_ids, storage)

    if resolved.hisparse is None:
        return (main(tokens, full),)
    ratio = resolved.logical_ratio
    dense = [layer for layer in full if layer not in sparse]
    swapped = HisparsePool(main(tokens, sparse), host_to_device_ratio=ratio)
    return (main(tokens * ratio, dense), swapped) if dense else (swapped,)
