"""Multi-head latent caches: one latent row a token, the value view is its first columns."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvplan.errors import PoolError
from kvplan.pools.base import RowShapes
from kvplan.pools.fp4 import BLOCK, dequantize_block16, quantize_block16
from kvplan.pools.leaf import LeafPool, converted, put, take
from kvplan.pools.storage import Storage


class MlaPool(LeafPool):
    """One latent (slots, 1, kv_lora_rank + qk_rope_head_dim) a layer; the door takes k alone."""

    def __init__(
        self,
        *,
        size: int,
        page_size: int,
        layer_ids: Sequence[int],
        kv_lora_rank: int,
        qk_rope_head_dim: int,
        dtype: torch.dtype,
        storage: Storage,
        requires_physical: bool = False,
    ) -> None:
        super().__init__(
            size=size,
            page_size=page_size,
            layer_ids=layer_ids,
            dtype=dtype,
            storage=storage,
            requires_physical=requires_physical,
        )
        self.kv_lora_rank = kv_lora_rank
        self.qk_rope_head_dim = qk_rope_head_dim
        self.row_width = kv_lora_rank + qk_rope_head_dim
        self.make_buffers()

    def make_buffers(self) -> None:
        """Buffers of this kind of latent."""
        self._latent = self.add("latent", (1, self.row_width), self.store_dtype)

    def row_shapes(self, layer_id: int) -> RowShapes:
        self.index(layer_id)
        return RowShapes((1, self.row_width), None)

    def write(
        self,
        index: int,
        slots: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor | None,  # noqa: ARG002
    ) -> None:
        put(self._latent[index], slots, converted(k, self.dtype))

    def get_key(self, layer_id: int) -> torch.Tensor:
        return self._latent[self.index(layer_id)].view(self.dtype)

    def get_value(self, layer_id: int) -> torch.Tensor:
        return self.get_key(layer_id)[..., : self.kv_lora_rank]

    def read(self, layer_id: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        return take(self._latent[self.index(layer_id)], self.read_slots(slots), self.dtype), None


class Fp4MlaPool(MlaPool):
    """Latents in FP4: codes (slots, 1, width // 2) and block-16 scale bytes (slots, width // 16)."""

    no_host_form = "FP4 caches have no host form"

    def make_buffers(self) -> None:
        if self.row_width % BLOCK:
            raise PoolError(
                f"FP4 latents need a width that {BLOCK} divides, it is {self.row_width}"
            )
        self.store_dtype = torch.uint8
        self._latent = self.add("latent", (1, self.row_width // 2), torch.uint8)
        self._scale = self.add("latent_scale", (self.row_width // BLOCK,), torch.uint8)

    def write(
        self,
        index: int,
        slots: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor | None,  # noqa: ARG002
    ) -> None:
        codes, scales = quantize_block16(k)
        put(self._latent[index], slots, codes)
        put(self._scale[index], slots, scales)

    def get_key(self, layer_id: int) -> torch.Tensor:
        return self._latent[self.index(layer_id)]

    def get_value(self, layer_id: int) -> torch.Tensor:
        return self.get_key(layer_id)[..., : self.kv_lora_rank // 2]

    def read(self, layer_id: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        index, slots = self.index(layer_id), self.read_slots(slots)
        return dequantize_block16(self._latent[index][slots], self._scale[index][slots]), None
