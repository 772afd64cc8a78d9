"""The host tier: page by page copies of what a pool's layers declare, one layer at a time."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch

from kvplan.errors import PoolError
from kvplan.pools.base import LayerBuffer, check_page_lists, check_pages, page_rows
from kvplan.pools.storage import Storage
from kvplan.pools.write_loc import check_slots


class Paged(Protocol):
    """A device pool with pages: KV by tokens, recurrent state by slots (pages of one)."""

    size: int
    page_size: int
    layer_ids: tuple[int, ...]
    storage: Storage
    no_host_form: str | None

    @property
    def num_pages(self) -> int:
        """Pages of the buffers, the padding page included."""

    def layer_buffers(self, layer_id: int) -> list[LayerBuffer]:
        """What a layer keeps of a page."""


class PageImage(NamedTuple):
    """Some pages of every layer on the host: layer id -> rows of each of its buffers."""

    layers: dict[int, tuple[torch.Tensor, ...]]


class HostTier:
    """Host buffers for `size` tokens of a device pool; pages are numbered from 0 and all usable.

    A layer is the unit of transfer. Capacities count tokens on both sides.
    """

    def __init__(self, pool: Paged, *, size: int) -> None:
        check_host_form(pool)
        check_pages(size, pool.page_size)
        self.pool = pool
        self.size = size
        self.page_size = pool.page_size
        self._layers = {
            layer_id: [
                host_copy(buffer, self.num_pages, pool.storage)
                for buffer in pool.layer_buffers(layer_id)
            ]
            for layer_id in pool.layer_ids
        }

    @property
    def num_pages(self) -> int:
        """Pages on the host."""
        return self.size // self.page_size

    def back_up(self, layer_id: int, device_pages: torch.Tensor, host_pages: torch.Tensor) -> None:
        """Copy a layer's device pages to the host."""
        self._check(device_pages, host_pages)
        for device, host in self._pairs(layer_id):
            host[host_pages.cpu()] = device[device_pages].cpu()

    def restore(self, layer_id: int, host_pages: torch.Tensor, device_pages: torch.Tensor) -> None:
        """Copy a layer's host pages to the device."""
        self._check(device_pages, host_pages)
        for device, host in self._pairs(layer_id):
            device[device_pages] = host[host_pages.cpu()].to(device.device)

    def bytes(self) -> int:
        """Bytes of all host buffers."""
        return sum(self.bytes_by_name().values())

    def bytes_by_name(self) -> dict[str, int]:
        """Host bytes of each thing that the pool keeps."""
        sums: dict[str, int] = {}
        for buffers in self._layers.values():
            for buffer in buffers:
                sums[buffer.name] = sums.get(buffer.name, 0) + buffer.tensor.nbytes
        return sums

    def _pairs(self, layer_id: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        if layer_id not in self._layers:
            raise PoolError(f"layer {layer_id} has no host buffers")
        device = self.pool.layer_buffers(layer_id)
        return [
            (page_rows(ours), page_rows(theirs))
            for ours, theirs in zip(device, self._layers[layer_id], strict=True)
        ]

    def _check(self, device_pages: torch.Tensor, host_pages: torch.Tensor) -> None:
        check_page_lists(device_pages, host_pages)
        check_slots(device_pages, self.pool.num_pages, "the device page list")
        check_slots(host_pages, self.num_pages, "the host page list")


def host_copy(buffer: LayerBuffer, num_pages: int, storage: Storage) -> LayerBuffer:
    """An empty host buffer for the same rows, pinned where a CUDA device copies from it."""
    shape = (num_pages * buffer.rows_per_page, *buffer.tensor.shape[1:])
    device = "meta" if storage.device.type == "meta" else "cpu"
    pinned = storage.device.type == "cuda"
    tensor = torch.empty(shape, dtype=buffer.tensor.dtype, device=device, pin_memory=pinned)
    return LayerBuffer(buffer.name, tensor, buffer.rows_per_page)


def save_pages(pool: Paged, pages: torch.Tensor) -> PageImage:
    """Some pages of all layers, copied to the host without a tier of their own."""
    check_host_form(pool)
    check_slots(pages, pool.num_pages, "the page list")
    return PageImage(
        {
            layer_id: tuple(
                page_rows(buffer)[pages].cpu() for buffer in pool.layer_buffers(layer_id)
            )
            for layer_id in pool.layer_ids
        }
    )


def load_pages(pool: Paged, image: PageImage, pages: torch.Tensor) -> None:
    """Put saved pages into pages of the pool, bit for bit."""
    check_slots(pages, pool.num_pages, "the page list")
    for layer_id, saved in image.layers.items():
        for buffer, rows in zip(pool.layer_buffers(layer_id), saved, strict=True):
            page_rows(buffer)[pages] = rows.to(buffer.tensor.device)


def check_host_form(pool: Paged) -> None:
    """Refuse pools whose pages have no host copy."""
    if pool.no_host_form is not None:
        raise PoolError(pool.no_host_form, hint="run without the host tier")
