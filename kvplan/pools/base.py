"""What every KV pool is: buffers of some layers over pages of slots, with one write door."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch

from kvplan.errors import PoolError
from kvplan.pools.storage import Storage
from kvplan.pools.write_loc import KVWriteLoc, check_slots


class PoolTensor(NamedTuple):
    """One tensor of a pool: the layers it serves, and whether another one holds its bytes."""

    name: str
    layers: tuple[int, ...]
    tensor: torch.Tensor
    is_view: bool


class LayerBuffer(NamedTuple):
    """What one layer keeps of a page: `rows_per_page` rows along the first axis."""

    name: str
    tensor: torch.Tensor
    rows_per_page: int


class SlotPlace(NamedTuple):
    """Where one layer keeps something of a slot: bytes of the tensor `name` from its start.

    A buffer with a row a page keeps all slots of the page in those bytes.
    """

    name: str
    offset_bytes: int
    num_bytes: int


class RowShapes(NamedTuple):
    """What the write door takes for one token; v is None where nothing of it is kept."""

    k: tuple[int, ...]
    v: tuple[int, ...] | None


class KvPool(ABC):
    """K and V of some layers. Capacity is `size` tokens; page 0 is the padding page on top."""

    requires_physical = False
    no_host_form: str | None = None  # why pages of this kind have no host copy

    def __init__(
        self, *, size: int, page_size: int, layer_ids: Sequence[int], storage: Storage
    ) -> None:
        check_pages(size, page_size)
        self.size = size
        self.page_size = page_size
        self.layer_ids = tuple(layer_ids)
        self.storage = storage
        self._local = {layer_id: index for index, layer_id in enumerate(self.layer_ids)}

    @property
    def num_pages(self) -> int:
        """Pages of the buffers, the padding page included."""
        return self.size // self.page_size + 1

    @property
    def num_slots(self) -> int:
        """Slots of the buffers, the padding page's included."""
        return self.size + self.page_size

    def index(self, layer_id: int) -> int:
        """The local number of a layer; refused for a layer without KV here."""
        try:
            return self._local[layer_id]
        except KeyError:
            raise PoolError(
                f"layer {layer_id} has no KV in this pool",
                hint=f"its layers are {spans(self.layer_ids)}",
            ) from None

    @abstractmethod
    def parts(self) -> dict[str, list[PoolTensor]]:
        """Every tensor by the sub-pool that it belongs to, views marked."""

    def tensors(self) -> list[PoolTensor]:
        """Every tensor of the pool, views marked."""
        return [entry for part in self.parts().values() for entry in part]

    @abstractmethod
    def layer_buffers(self, layer_id: int) -> list[LayerBuffer]:
        """What travels with a layer's pages, in copies and to the host."""

    @abstractmethod
    def row_shapes(self, layer_id: int) -> RowShapes:
        """Shapes of one token's k and v at the write door."""

    @abstractmethod
    def set_kv_buffer(
        self, layer_id: int, loc: KVWriteLoc, k: torch.Tensor, v: torch.Tensor | None = None
    ) -> None:
        """Write k (tokens, *row_shapes.k) and v of a batch at its slots; never syncs with the device."""

    @abstractmethod
    def get_key(self, layer_id: int) -> torch.Tensor:
        """The layer's keys as they lie, viewed in the pool's dtype."""

    @abstractmethod
    def get_value(self, layer_id: int) -> torch.Tensor:
        """The layer's values as they lie, viewed in the pool's dtype."""

    def get_kv(self, layer_id: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Both views of a layer."""
        return self.get_key(layer_id), self.get_value(layer_id)

    @abstractmethod
    def read(self, layer_id: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """k and v of some slots as the write door took them, unpacked and with scales applied."""

    def places(self, layer_id: int, slot: int) -> list[SlotPlace]:
        """Where a layer keeps what a slot holds; the slot is one of the layer's own side."""
        check_slots(torch.tensor([slot]), self.num_slots, "the place")
        page, offset = divmod(slot, self.page_size)
        return [
            place_of(buffer, page, offset, self.page_size)
            for buffer in self.layer_buffers(layer_id)
        ]

    def bytes(self) -> int:
        """Bytes of all tensors, views not counted."""
        return sum(entry.tensor.nbytes for entry in self.tensors() if not entry.is_view)

    def copy_pages(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copy whole pages within the device: page source[i] over page target[i], all layers."""
        check_page_lists(source, target)
        for pages in (source, target):
            check_slots(pages, self.num_pages, "the page list")
        for layer_id in self.layer_ids:
            for buffer in self.layer_buffers(layer_id):
                rows = page_rows(buffer)
                rows[target] = rows[source]


def place_of(buffer: LayerBuffer, page: int, offset: int, page_size: int) -> SlotPlace:
    """A slot's own row, or all rows of its page where they are fewer than its slots."""
    tensor = buffer.tensor
    own = buffer.rows_per_page == page_size
    row = page * buffer.rows_per_page + (offset if own else 0)
    num_rows = 1 if own else buffer.rows_per_page
    row_bytes = tensor.stride(0) * tensor.element_size()
    start = int(tensor.storage_offset()) * tensor.element_size()
    used = tensor[:1].numel() * tensor.element_size()
    return SlotPlace(buffer.name, start + row * row_bytes, (num_rows - 1) * row_bytes + used)


def page_rows(buffer: LayerBuffer) -> torch.Tensor:
    """A layer's buffer as bytes or elements of shape (pages, rows_per_page, ...); 0-row ones stay so."""
    tensor = raw(buffer.tensor)
    num_pages = len(tensor) // buffer.rows_per_page
    rows = tensor[: num_pages * buffer.rows_per_page]
    return rows.view(num_pages, buffer.rows_per_page, *tensor.shape[1:])


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """One-byte floats as uint8, which every device can index and assign; the rest as it is."""
    if tensor.dtype.itemsize == 1 and tensor.dtype != torch.uint8:
        return tensor.view(torch.uint8)
    return tensor


def check_pages(size: int, page_size: int) -> None:
    """Refuse capacities that are not whole pages."""
    if page_size < 1:
        raise PoolError(f"the page size must be at least 1, it is {page_size}")
    if size < 0 or size % page_size:
        raise PoolError(
            f"{size} tokens are not whole pages of {page_size}",
            hint=f"round down to {max(size, 0) // page_size * page_size}",
        )


def check_page_lists(source: torch.Tensor, target: torch.Tensor) -> None:
    """Refuse page lists that do not pair up."""
    if source.shape != target.shape or source.dim() != 1:
        raise PoolError(
            f"{tuple(source.shape)} source pages do not pair with {tuple(target.shape)} target pages"
        )


def spans(layer_ids: Sequence[int]) -> str:
    """Layer ids in words: '0-3, 7', or 'none'."""
    runs: list[list[int]] = []
    for layer_id in sorted(layer_ids):
        if runs and layer_id == runs[-1][1] + 1:
            runs[-1][1] = layer_id
        else:
            runs.append([layer_id, layer_id])
    return ", ".join(f"{a}-{b}" if a != b else f"{a}" for a, b in runs) or "none"
