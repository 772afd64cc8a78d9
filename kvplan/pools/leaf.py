"""A pool with buffers of its own: one tensor a layer for each thing it keeps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch

from kvplan.errors import PoolError
from kvplan.pools.base import KvPool, LayerBuffer, PoolTensor, raw
from kvplan.pools.fp4 import decode, encode
from kvplan.pools.storage import Storage
from kvplan.pools.write_loc import KVWriteLoc, check_slots

FP4 = torch.float4_e2m1fn_x2
# index_put has no fp8 kernels: such caches are stored as bytes and viewed when read
STORED_AS_BYTES = (torch.float8_e4m3fn, torch.float8_e5m2)


class Family(NamedTuple):
    """Tensors of one name, one a layer, in the order of layer_ids."""

    name: str
    tensors: list[torch.Tensor]
    rows_per_page: int


class LeafPool(KvPool):
    """Owns its buffers and checks what comes through its door before anything is written."""

    def __init__(
        self,
        *,
        size: int,
        page_size: int,
        layer_ids: Sequence[int],
        dtype: torch.dtype,
        storage: Storage,
        requires_physical: bool = False,
    ) -> None:
        super().__init__(size=size, page_size=page_size, layer_ids=layer_ids, storage=storage)
        self.dtype = dtype
        self.store_dtype = store_dtype(dtype)
        self.requires_physical = requires_physical
        self._families: list[Family] = []
        self._shared: list[PoolTensor] = []

    def add(
        self,
        name: str,
        row: Sequence[int],
        dtype: torch.dtype,
        *,
        rows_per_page: int | None = None,
        num_rows: int | None = None,
    ) -> list[torch.Tensor]:
        """One tensor a layer of (num_rows, *row): a row a slot, if nothing else is said."""
        per_page = self.page_size if rows_per_page is None else rows_per_page
        rows = self.num_pages * per_page if num_rows is None else num_rows
        tensors = [self.storage.zeros((rows, *row), dtype) for _ in self.layer_ids]
        self._families.append(Family(name, tensors, per_page))
        return tensors

    def add_shared(self, name: str, row: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """One tensor of (slots, *row) that all layers use in turn; it does not travel with pages."""
        tensor = self.storage.zeros((self.num_slots, *row), dtype)
        self._shared.append(PoolTensor(name, self.layer_ids, tensor, is_view=False))
        return tensor

    def parts(self) -> dict[str, list[PoolTensor]]:
        layered = [
            PoolTensor(family.name, (layer_id,), tensor, is_view=False)
            for family in self._families
            for layer_id, tensor in zip(self.layer_ids, family.tensors, strict=True)
        ]
        return {"kv": layered + self._shared}

    def layer_buffers(self, layer_id: int) -> list[LayerBuffer]:
        index = self.index(layer_id)
        return [
            LayerBuffer(family.name, family.tensors[index], family.rows_per_page)
            for family in self._families
        ]

    def set_kv_buffer(
        self, layer_id: int, loc: KVWriteLoc, k: torch.Tensor, v: torch.Tensor | None = None
    ) -> None:
        index = self.index(layer_id)
        slots = self.slots_of(loc)
        shapes = self.row_shapes(layer_id)
        check_values("k", k, len(slots), shapes.k)
        check_values("v", v, len(slots), shapes.v)
        self.write(index, slots, k, v)

    def slots_of(self, loc: KVWriteLoc) -> torch.Tensor:
        """The slots that this pool writes for a batch; a flag is read, the device is not."""
        if not isinstance(loc, KVWriteLoc):
            raise PoolError(
                f"the write door takes a KVWriteLoc, not {type(loc).__name__}",
                hint="wrap the slots: KVWriteLoc(out_cache_loc)",
            )
        if self.requires_physical and not loc.physical:
            raise PoolError(
                "this pool takes physical slots and the write loc is not marked physical",
                hint="translate virtual ids first, then hand over KVWriteLoc(loc, physical=True)",
            )
        check_slots(loc.loc, self.num_slots)
        return loc.loc

    @abstractmethod
    def write(
        self, index: int, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor | None
    ) -> None:
        """Store checked values of the index-th layer."""

    def read_slots(self, slots: torch.Tensor) -> torch.Tensor:
        """Checked slots for reading."""
        check_slots(slots, self.num_slots, "the read")
        return slots


def store_dtype(dtype: torch.dtype) -> torch.dtype:
    """What a cache of this dtype is stored as: bytes for fp8, itself otherwise."""
    return torch.uint8 if dtype in STORED_AS_BYTES else dtype


def converted(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Values in the cache's dtype; FP4 without a recipe keeps one unscaled code a byte."""
    if dtype != FP4:
        return values.to(dtype)
    if values.dtype == FP4:
        raise PoolError(
            "the write door takes values, not packed FP4", hint="hand over floats of any dtype"
        )
    return encode(values.float()).view(FP4)


def put(buffer: torch.Tensor, slots: torch.Tensor, values: torch.Tensor) -> None:
    """buffer[slots] = values, byte for byte."""
    raw(buffer)[slots] = raw(values)


def take(buffer: torch.Tensor, slots: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """buffer[slots], seen in dtype; FP4 codes as their values."""
    taken = raw(buffer)[slots]
    if dtype == FP4:
        return decode(taken).to(torch.bfloat16)
    return taken if taken.dtype == dtype else taken.view(dtype)


def check_values(
    name: str, values: torch.Tensor | None, num_tokens: int, row: tuple[int, ...] | None
) -> None:
    """Refuse values that do not fit the layer's rows."""
    given = None if values is None else tuple(values.shape)
    wanted = None if row is None else (num_tokens, *row)
    if given != wanted:
        raise PoolError(
            f"{name} is {given or 'missing'}, the layer takes {wanted or 'none'} for {num_tokens} slots"
        )
