"""Index keys beside latents: their pages, their layers, their ranks."""

from __future__ import annotations

import pytest
import torch

from kvplan.errors import PoolError
from kvplan.pools.dsa import DsaPool, PackedMlaPool
from kvplan.pools.index_keys import IndexKeyPool
from kvplan.pools.mla import MlaPool
from kvplan.pools.storage import Storage
from kvplan.pools.write_loc import KVWriteLoc
from tests.pools.kinds import KINDS


def random_keys(count: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    keys = torch.randint(0, 120, (count, 128), dtype=torch.uint8, device=device)
    return keys.view(torch.float8_e4m3fn), torch.rand(count, 1, device=device)


def dsa_pool(storage: Storage, kind: str) -> DsaPool:
    pool = KINDS[kind](storage)
    assert isinstance(pool, DsaPool)
    return pool


@pytest.mark.parametrize("kind", ["dsa-bfloat16", "dsa-fp8-packed", "dsa-fp8-raw-two-ranks"])
def test_keys_and_scales_come_back_bit_for_bit(anywhere, kind):
    pool = dsa_pool(anywhere, kind)
    slots = torch.randperm(pool.index_keys.size, device=anywhere.device)[:200] + 64
    keys, scales = random_keys(200, anywhere.device)

    pool.set_index_keys(8, KVWriteLoc(slots), keys, scales)

    read_keys, read_scales = pool.index_keys.read(8, slots)
    assert torch.equal(read_keys.view(torch.uint8), keys.view(torch.uint8))
    assert torch.equal(read_scales, scales)
    assert not pool.index_keys.pages(9).any()


def test_a_page_holds_its_keys_first_and_its_scales_after(storage):
    pool = dsa_pool(storage, "dsa-bfloat16")
    keys, scales = random_keys(1, storage.device)
    pool.set_index_keys(8, KVWriteLoc(torch.tensor([64 + 3])), keys, scales)

    page = pool.index_keys.pages(8)[1]
    assert torch.equal(page[3 * 128 : 4 * 128], keys[0].view(torch.uint8))
    assert torch.equal(page[64 * 128 + 12 : 64 * 128 + 16].view(torch.float32), scales[0])


def test_layers_that_share_a_top_k_own_no_rows(storage):
    pool = dsa_pool(storage, "dsa-bfloat16")
    shapes = [tuple(entry.tensor.shape) for entry in pool.index_keys.tensors()]

    assert shapes == [(0, 8448), (9, 8448), (9, 8448)]
    assert [each.name for each in pool.layer_buffers(7)] == ["latent"]
    with pytest.raises(PoolError, match="layer 7 owns no index keys") as refusal:
        pool.index_keys.read(7, torch.tensor([64]))
    assert "8-9" in str(refusal.value.hint)


def test_index_pages_of_all_ranks_travel_with_a_latent_page(anywhere):
    pool = dsa_pool(anywhere, "dsa-fp8-raw-two-ranks")
    slots = torch.arange(128, 256, device=anywhere.device)  # both ranks' share of latent page 1
    keys, scales = random_keys(128, anywhere.device)
    pool.set_index_keys(9, KVWriteLoc(slots), keys, scales)

    pool.copy_pages(
        torch.tensor([1], device=anywhere.device), torch.tensor([4], device=anywhere.device)
    )

    assert torch.equal(pool.index_keys.read(9, slots + 3 * 128)[1], scales)


def test_pooled_keys_share_a_place(storage):
    keys_pool = IndexKeyPool(size=512, layer_ids=(0,), head_dim=128, kpool=4, storage=storage)
    keys, scales = random_keys(1, storage.device)

    keys_pool.write(0, torch.tensor([259]), keys, scales)

    assert keys_pool.page_size == 256
    assert torch.equal(keys_pool.read(0, torch.tensor([256]))[1], scales)


def test_wrong_keys_are_refused(storage):
    pool = dsa_pool(storage, "dsa-bfloat16")
    keys, scales = random_keys(2, storage.device)
    loc = KVWriteLoc(torch.tensor([64, 65]))

    with pytest.raises(PoolError, match=r"float8_e4m3fn with float32 scales, not torch\.float32"):
        pool.set_index_keys(8, loc, keys.float(), scales)
    with pytest.raises(PoolError, match=r"keys and scales are \(2, 128\)"):
        pool.set_index_keys(8, loc, keys[:1], scales)
    with pytest.raises(PoolError, match="the index key loc names slot 640"):
        pool.set_index_keys(8, KVWriteLoc(torch.tensor([64, 640])), keys, scales)


def test_pages_of_keys_and_latents_must_go_together(storage):
    latent = MlaPool(
        size=512,
        page_size=16,
        layer_ids=(0,),
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        dtype=torch.bfloat16,
        storage=storage,
    )
    keys = IndexKeyPool(size=512, layer_ids=(0,), head_dim=128, storage=storage)

    with pytest.raises(PoolError, match="9 pages of 64 index keys do not go with 33 pages of 16"):
        DsaPool(latent, keys)


def test_packed_latents_are_fp8_alone(storage):
    with pytest.raises(PoolError, match="packed latents are float8_e4m3fn"):
        PackedMlaPool(
            size=64,
            page_size=64,
            layer_ids=(0,),
            kv_lora_rank=512,
            qk_rope_head_dim=64,
            dtype=torch.bfloat16,
            storage=storage,
        )
