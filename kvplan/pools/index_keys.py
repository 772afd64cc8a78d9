"""Index keys of sparse attention: fp8 keys and float32 scales in 64-token pages of bytes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvplan.errors import PoolError
from kvplan.pools.base import LayerBuffer, PoolTensor, check_pages, spans
from kvplan.pools.packed import PackedLayout, as_bytes
from kvplan.pools.storage import Storage
from kvplan.pools.write_loc import check_slots
from kvplan.units import ceil_div

SCALE_BLOCK = 128  # values that share one float32 scale
SCALE_BYTES = 4
PHYSICAL_PAGE = 64  # keys that the kernels read as one page


class IndexKeyPool:
    """uint8 (pages, 64 * (head_dim + scale bytes)) a layer, for `size` tokens and a padding page.

    `kpool` tokens share one key. Layers that share another layer's top-k own 0 rows.
    padding_tokens, where given, are reserved in place of one page.
    """

    no_host_form: str | None = None

    def __init__(
        self,
        *,
        size: int,
        layer_ids: Sequence[int],
        head_dim: int,
        storage: Storage,
        owners: Sequence[int] | None = None,
        kpool: int = 1,
        padding_tokens: int | None = None,
    ) -> None:
        if head_dim % SCALE_BLOCK:
            raise PoolError(
                f"index keys need a head_dim that {SCALE_BLOCK} divides, it is {head_dim}"
            )
        self.size = size
        self.page_size = PHYSICAL_PAGE * kpool
        check_pages(size, self.page_size)
        self.layer_ids = tuple(layer_ids)
        self.owners = frozenset(self.layer_ids if owners is None else owners)
        self.head_dim = head_dim
        self.kpool = kpool
        self.storage = storage
        self.layout = PackedLayout(
            page_tokens=PHYSICAL_PAGE,
            data_bytes=head_dim,
            scale_bytes=head_dim // SCALE_BLOCK * SCALE_BYTES,
        )
        padding = self.page_size if padding_tokens is None else padding_tokens
        rows = ceil_div(size + padding, self.page_size)
        self._pages = {
            layer_id: storage.zeros(
                (rows if layer_id in self.owners else 0, self.layout.page_bytes), torch.uint8
            )
            for layer_id in self.layer_ids
        }

    @property
    def num_pages(self) -> int:
        """Pages that tokens can lie in, the padding page included."""
        return self.size // self.page_size + 1

    def pages(self, layer_id: int) -> torch.Tensor:
        """A layer's pages of bytes; refused for layers that own none."""
        if layer_id not in self.owners:
            raise PoolError(
                f"layer {layer_id} owns no index keys",
                hint=f"layers with keys are {spans(sorted(self.owners))}; others share theirs",
            )
        return self._pages[layer_id]

    def write(
        self, layer_id: int, slots: torch.Tensor, keys: torch.Tensor, scales: torch.Tensor
    ) -> None:
        """Store keys float8_e4m3fn (tokens, head_dim) and scales float32 (tokens, head_dim // 128).

        A pooled key goes by any slot of its group.
        """
        pages = self.pages(layer_id)
        check_slots(slots, self.size + self.page_size, "the index key loc")
        if keys.dtype != torch.float8_e4m3fn or scales.dtype != torch.float32:
            raise PoolError(
                f"index keys are float8_e4m3fn with float32 scales, not {keys.dtype} with {scales.dtype}"
            )
        wanted = ((len(slots), self.head_dim), (len(slots), self.head_dim // SCALE_BLOCK))
        if (keys.shape, scales.shape) != wanted:
            raise PoolError(
                f"keys and scales are {wanted[0]} and {wanted[1]}, not {tuple(keys.shape)} and {tuple(scales.shape)}"
            )
        self.layout.write(pages, slots // self.kpool, as_bytes(keys), as_bytes(scales))

    def read(self, layer_id: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and scales of some slots, as they were stored."""
        pages = self.pages(layer_id)
        check_slots(slots, self.size + self.page_size, "the index key read")
        keys, scales = self.layout.read(pages, slots // self.kpool)
        return keys.view(torch.float8_e4m3fn), scales.contiguous().view(torch.float32)

    def tensors(self) -> list[PoolTensor]:
        """The pages of every layer, empty ones included."""
        return [
            PoolTensor("index_key", (layer_id,), pages, is_view=False)
            for layer_id, pages in self._pages.items()
        ]

    def bytes(self) -> int:
        """Bytes of all pages."""
        return sum(pages.nbytes for pages in self._pages.values())

    def layer_buffers(self, layer_id: int, rows_per_page: int = 1) -> list[LayerBuffer]:
        """A layer's pages; rows_per_page where several stand beside one page of KV."""
        if layer_id not in self.owners:
            return []
        return [LayerBuffer("index_key", self._pages[layer_id], rows_per_page)]
