"""Sparse latent attention (DSA): a latent pool, and the index keys that choose its tokens."""

from __future__ import annotations

import torch

from kvplan.errors import PoolError
from kvplan.pools.base import KvPool, LayerBuffer, PoolTensor
from kvplan.pools.fp8_blocks import dequantize_float, quantize_float
from kvplan.pools.index_keys import SCALE_BLOCK, SCALE_BYTES, IndexKeyPool
from kvplan.pools.leaf import put
from kvplan.pools.mla import MlaPool
from kvplan.pools.packed import as_bytes
from kvplan.pools.routed import RoutedPool
from kvplan.pools.write_loc import KVWriteLoc


class PackedMlaPool(MlaPool):
    """Latents as rows of bytes: fp8 values, a float32 scale per 128 of them, the rope part in bf16.

    656 bytes a token for 512 + 64.
    """

    def make_buffers(self) -> None:
        if self.kv_lora_rank % SCALE_BLOCK or self.dtype != torch.float8_e4m3fn:
            raise PoolError(
                f"packed latents are float8_e4m3fn of a rank that {SCALE_BLOCK} divides, not {self.dtype} of {self.kv_lora_rank}"
            )
        self._rope_start = self.kv_lora_rank + self.kv_lora_rank // SCALE_BLOCK * SCALE_BYTES
        width = self._rope_start + self.qk_rope_head_dim * torch.bfloat16.itemsize
        self._latent = self.add("latent", (1, width), self.store_dtype)

    def write(
        self,
        index: int,
        slots: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor | None,  # noqa: ARG002
    ) -> None:
        latent, rope = k[:, 0, : self.kv_lora_rank], k[:, 0, self.kv_lora_rank :]
        data, scales = quantize_float(latent, SCALE_BLOCK)
        parts = (as_bytes(data), as_bytes(scales), as_bytes(rope.to(torch.bfloat16)))
        put(self._latent[index], slots, torch.cat(parts, dim=-1).unsqueeze(1))

    def get_key(self, layer_id: int) -> torch.Tensor:
        return self._latent[self.index(layer_id)]

    def get_value(self, layer_id: int) -> torch.Tensor:
        return self.get_key(layer_id)[..., : self._rope_start]

    def read(self, layer_id: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        rows = self._latent[self.index(layer_id)][self.read_slots(slots)][:, 0]
        data = rows[:, : self.kv_lora_rank].view(torch.float8_e4m3fn)
        scales = rows[:, self.kv_lora_rank : self._rope_start].contiguous().view(torch.float32)
        rope = rows[:, self._rope_start :].contiguous().view(torch.bfloat16)
        return torch.cat((dequantize_float(data, scales), rope), dim=-1).unsqueeze(1), None


class DsaPool(RoutedPool):
    """Latents with index keys beside them.

    Under decode context parallelism the latents are this rank's share, while the index keys cover
    the slots of all ranks: (pages * ranks) pages of keys.
    """

    def __init__(self, latent: MlaPool, index_keys: IndexKeyPool) -> None:
        super().__init__(
            size=latent.size,
            page_size=latent.page_size,
            layer_ids=latent.layer_ids,
            storage=latent.storage,
        )
        if index_keys.page_size != latent.page_size or index_keys.num_pages % latent.num_pages:
            raise PoolError(
                f"{index_keys.num_pages} pages of {index_keys.page_size} index keys do not go with {latent.num_pages} pages of {latent.page_size} latents",
                hint="size the index keys by (size + page) * ranks - page tokens",
            )
        self.latent = latent
        self.index_keys = index_keys
        self._index_pages = index_keys.num_pages // latent.num_pages

    def part(self, layer_id: int) -> KvPool:
        self.index(layer_id)
        return self.latent

    def parts(self) -> dict[str, list[PoolTensor]]:
        return {"kv": self.latent.tensors() + self.index_keys.tensors()}

    def layer_buffers(self, layer_id: int) -> list[LayerBuffer]:
        keys = self.index_keys.layer_buffers(layer_id, self._index_pages)
        return super().layer_buffers(layer_id) + keys

    def set_index_keys(
        self, layer_id: int, loc: KVWriteLoc, keys: torch.Tensor, scales: torch.Tensor
    ) -> None:
        """Store index keys and scales at slots that count over all ranks."""
        self.index_keys.write(layer_id, loc.loc, keys, scales)
