"""Small pools of every kind, built on the device that a test asks for."""

from __future__ import annotations

from collections.abc import Callable

import torch

from kvplan.pools.base import KvPool
from kvplan.pools.dsa import DsaPool, PackedMlaPool
from kvplan.pools.fp4_mha import Fp4Block16Pool
from kvplan.pools.index_keys import IndexKeyPool
from kvplan.pools.mha import KOnlyPool, MhaPool
from kvplan.pools.mla import Fp4MlaPool, MlaPool
from kvplan.pools.mxfp8 import Mxfp8Pool
from kvplan.pools.nvfp4 import Nvfp4Pool
from kvplan.pools.packed_latent import PackedLatentPool
from kvplan.pools.storage import Storage

SIZE = 512
LAYERS = (7, 8, 9)

Builder = Callable[[Storage], KvPool]


def mha(dtype: torch.dtype, page_size: int = 16) -> Builder:
    return lambda storage: MhaPool(
        size=SIZE,
        page_size=page_size,
        layer_ids=LAYERS,
        num_heads=2,
        head_dim=32,
        v_head_dim=16,
        dtype=dtype,
        storage=storage,
    )


def mla(pool: type[MlaPool], dtype: torch.dtype, page_size: int = 32) -> Builder:
    return lambda storage: pool(
        size=SIZE,
        page_size=page_size,
        layer_ids=LAYERS,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        dtype=dtype,
        storage=storage,
    )


def dsa(pool: type[MlaPool], dtype: torch.dtype, ranks: int = 1) -> Builder:
    def build(storage: Storage) -> KvPool:
        latent = mla(pool, dtype, 64)(storage)
        assert isinstance(latent, MlaPool)
        keys = IndexKeyPool(
            size=latent.num_slots * ranks - 64,
            layer_ids=LAYERS,
            owners=LAYERS[1:],
            head_dim=128,
            storage=storage,
        )
        return DsaPool(latent, keys)

    return build


def nvfp4(*, linear: bool, native: bool, workspace: bool) -> Builder:
    return lambda storage: Nvfp4Pool(
        size=SIZE,
        page_size=64,
        layer_ids=LAYERS,
        num_heads=2,
        head_dim=128,
        linear=linear,
        native=native,
        workspace=workspace,
        storage=storage,
    )


def mxfp8(page_size: int) -> Builder:
    return lambda storage: Mxfp8Pool(
        size=SIZE,
        page_size=page_size,
        layer_ids=LAYERS,
        num_heads=2,
        head_dim=64,
        v_head_dim=32,
        storage=storage,
    )


KINDS: dict[str, Builder] = {
    "mha-float32": mha(torch.float32),
    "mha-bfloat16": mha(torch.bfloat16),
    "mha-bfloat16-page-1": mha(torch.bfloat16, page_size=1),
    "mha-float16": mha(torch.float16),
    "mha-fp8-e4m3": mha(torch.float8_e4m3fn),
    "mha-fp8-e5m2": mha(torch.float8_e5m2),
    "mha-fp4-without-recipe": mha(torch.float4_e2m1fn_x2),
    "k-only": lambda storage: KOnlyPool(
        size=SIZE,
        page_size=16,
        layer_ids=LAYERS,
        num_heads=1,
        head_dim=128,
        dtype=torch.bfloat16,
        storage=storage,
    ),
    "mla-bfloat16": mla(MlaPool, torch.bfloat16),
    "mla-fp8": mla(MlaPool, torch.float8_e4m3fn),
    "mla-fp4": mla(Fp4MlaPool, torch.float4_e2m1fn_x2),
    "dsa-bfloat16": dsa(MlaPool, torch.bfloat16),
    "dsa-fp8-raw-two-ranks": dsa(MlaPool, torch.float8_e4m3fn, ranks=2),
    "dsa-fp8-packed": dsa(PackedMlaPool, torch.float8_e4m3fn),
    "mxfp8": mxfp8(64),
    "mxfp8-tiled": mxfp8(128),
    "fp4-mx-block16": lambda storage: Fp4Block16Pool(
        size=SIZE, page_size=64, layer_ids=LAYERS, num_heads=2, head_dim=64, storage=storage
    ),
    "nvfp4-linear": nvfp4(linear=True, native=False, workspace=True),
    "nvfp4-native": nvfp4(linear=False, native=True, workspace=False),
    "nvfp4-both": nvfp4(linear=True, native=True, workspace=True),
    "deepseek-v4-latent": lambda storage: PackedLatentPool(
        size=SIZE,
        page_size=64,
        padding_tokens=256,
        layer_ids=LAYERS,
        nope_dim=448,
        rope_dim=64,
        storage=storage,
    ),
}
