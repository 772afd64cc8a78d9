"""KV in a buffer that is shared: what a token keeps in all layers is one run of bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from kvplan.errors import PoolError
from kvplan.pools.base import PoolTensor, RowShapes
from kvplan.pools.leaf import Family, LeafPool, converted, put, store_dtype, take
from kvplan.pools.storage import Storage
from kvplan.sizing.unified import ENTRY_ALIGN, dense_strides
from kvplan.units import ceil_page

Rows = Mapping[str, tuple[int, ...]]


def entry_bytes(rows: Rows, num_layers: int, dtype: torch.dtype) -> int:
    """Bytes that one token takes over all layers of such a pool, padding included."""
    elements = sum(math.prod(row) for row in rows.values())
    return ceil_page(num_layers * elements * dtype.itemsize, ENTRY_ALIGN)


class TokenMajorPool(LeafPool):
    """Views into a byte buffer: token t of all layers lies at bytes t * entry_bytes.

    `rows` names what a layer keeps of a token, K and V or a latent, in their order in the entry;
    each is (slots, *row). The value of a latent is its first `value_width` columns. Slots are
    physical ones: the write door takes no others.
    """

    def __init__(
        self,
        buffer: torch.Tensor,
        *,
        page_size: int,
        layer_ids: Sequence[int],
        rows: Rows,
        dtype: torch.dtype,
        storage: Storage,
        value_width: int | None = None,
    ) -> None:
        self.rows = dict(rows)
        self.value_width = value_width
        self.entry_bytes = entry_bytes(rows, len(layer_ids), dtype)
        self.page_bytes = page_size * self.entry_bytes
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
        stride = self.entry_bytes // dtype.itemsize
        views: dict[str, list[torch.Tensor]] = {name: [] for name in rows}
        at = 0
        for _ in self.layer_ids:
            for name, row in rows.items():
                shape = (num_pages * page_size, *row)
                views[name].append(elements.as_strided(shape, (stride, *dense_strides(row)), at))
                at += math.prod(row)
        self._families = [Family(name, tensors, page_size) for name, tensors in views.items()]

    def parts(self) -> dict[str, list[PoolTensor]]:
        """The views alone: the buffer is its owner's."""
        return {
            part: [entry._replace(is_view=True) for entry in entries]
            for part, entries in super().parts().items()
        }

    def row_shapes(self, layer_id: int) -> RowShapes:
        self.index(layer_id)
        k, *v = self.rows.values()
        return RowShapes(k, v[0] if v else None)

    def write(
        self, index: int, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor | None
    ) -> None:
        # all of them convert before any is written
        stored = [converted(values, self.dtype) for values in (k, v) if values is not None]
        for family, values in zip(self._families, stored, strict=True):
            put(family.tensors[index], slots, values)

    def get_key(self, layer_id: int) -> torch.Tensor:
        return self._families[0].tensors[self.index(layer_id)].view(self.dtype)

    def get_value(self, layer_id: int) -> torch.Tensor:
        value = self._families[-1].tensors[self.index(layer_id)].view(self.dtype)
        return value[..., : self.value_width]

    def read(self, layer_id: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        index, slots = self.index(layer_id), self.read_slots(slots)
        k, *v = (take(family.tensors[index], slots, self.dtype) for family in self._families)
        return k, v[0] if v else None
