"""K and V in a buffer that is shared: a page of all layers is one run of bytes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvplan.errors import PoolError
from kvplan.pools.base import PoolTensor, RowShapes, raw
from kvplan.pools.leaf import Family, LeafPool, converted, store_dtype
from kvplan.pools.storage import Storage


def token_bytes(
    *, num_layers: int, num_heads: int, head_dim: int, v_head_dim: int, dtype: torch.dtype
) -> int:
    """Bytes that one token takes over all layers of such a pool."""
    return num_layers * num_heads * (head_dim + v_head_dim) * dtype.itemsize


class PageMajorPool(LeafPool):
    """Views into a byte buffer: page p of all layers lies at bytes p * page_bytes.

    A layer's K and V are (pages, page_size, heads, dim). Slots are physical ones: the write door
    takes no others.
    """

    def __init__(
        self,
        buffer: torch.Tensor,
        *,
        page_size: int,
        layer_ids: Sequence[int],
        num_heads: int,
        head_dim: int,
        v_head_dim: int,
        dtype: torch.dtype,
        storage: Storage,
    ) -> None:
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.v_head_dim = v_head_dim
        self.page_bytes = page_size * token_bytes(
            num_layers=len(layer_ids),
            num_heads=num_heads,
            head_dim=head_dim,
            v_head_dim=v_head_dim,
            dtype=dtype,
        )
        num_pages = len(buffer) // self.page_bytes
        if not num_pages:
            raise PoolError(
                f"a buffer of {len(buffer)} bytes holds no page of {self.page_bytes} bytes"
            )
        super().__init__(
            size=(num_pages - 1) * page_size,
            page_size=page_size,
            layer_ids=layer_ids,
            dtype=dtype,
            storage=storage,
            requires_physical=True,
        )
        elements = buffer[: num_pages * self.page_bytes].view(store_dtype(dtype))
        pages = elements.view(num_pages, -1)
        self._k: list[torch.Tensor] = []
        self._v: list[torch.Tensor] = []
        at = 0
        for _ in self.layer_ids:
            for side, dim in ((self._k, head_dim), (self._v, v_head_dim)):
                width = page_size * num_heads * dim
                side.append(pages[:, at : at + width].view(num_pages, page_size, num_heads, dim))
                at += width
        self._families = [Family("k", self._k, 1), Family("v", self._v, 1)]

    def parts(self) -> dict[str, list[PoolTensor]]:
        """The views alone: the buffer is its owner's."""
        return {
            part: [entry._replace(is_view=True) for entry in entries]
            for part, entries in super().parts().items()
        }

    def row_shapes(self, layer_id: int) -> RowShapes:
        self.index(layer_id)
        return RowShapes((self.num_heads, self.head_dim), (self.num_heads, self.v_head_dim))

    def write(
        self, index: int, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor | None
    ) -> None:
        assert v is not None
        stored_v = converted(v, self.dtype)  # both convert before either is written
        self._put(self._k[index], slots, converted(k, self.dtype))
        self._put(self._v[index], slots, stored_v)

    def get_key(self, layer_id: int) -> torch.Tensor:
        return self._k[self.index(layer_id)].view(self.dtype)

    def get_value(self, layer_id: int) -> torch.Tensor:
        return self._v[self.index(layer_id)].view(self.dtype)

    def read(self, layer_id: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        index, slots = self.index(layer_id), self.read_slots(slots)
        page, offset = slots // self.page_size, slots % self.page_size
        return (
            self._k[index][page, offset].view(self.dtype),
            self._v[index][page, offset].view(self.dtype),
        )

    def _put(self, pages: torch.Tensor, slots: torch.Tensor, values: torch.Tensor) -> None:
        raw(pages)[slots // self.page_size, slots % self.page_size] = raw(values)
