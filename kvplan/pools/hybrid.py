"""Hybrid linear models: KV of the full-attention layers, recurrent state of the linear ones."""

from __future__ import annotations

from typing import NamedTuple

import torch

from kvplan.errors import PoolError
from kvplan.pools.base import KvPool, PoolTensor
from kvplan.pools.host import PageImage, load_pages, save_pages
from kvplan.pools.recurrent import LayerState, StatePool
from kvplan.pools.routed import RoutedPool
from kvplan.pools.slot_tensors import StateImage


class RequestImage(NamedTuple):
    """A request's pages and its state slot on the host."""

    pages: PageImage
    state: StateImage


class HybridLinearPool(RoutedPool):
    """A full-attention pool with the recurrent state beside it; bytes and tensors are of both."""

    def __init__(self, full: KvPool, state: StatePool) -> None:
        super().__init__(
            size=full.size,
            page_size=full.page_size,
            layer_ids=full.layer_ids,
            storage=full.storage,
        )
        self.full = full
        self.state = state
        self.no_host_form = full.no_host_form

    def part(self, layer_id: int) -> KvPool:
        if layer_id in self.state.layer_ids and layer_id not in self.full.layer_ids:
            raise PoolError(
                f"layer {layer_id} is linear: it keeps state per request, not KV per token",
                hint="use layer_state",
            )
        self.index(layer_id)
        return self.full

    def layer_state(self, layer_id: int) -> LayerState:
        """The recurrent state of a linear layer."""
        return self.state.layer_state(layer_id)

    def parts(self) -> dict[str, list[PoolTensor]]:
        return self.full.parts() | {"state": self.state.tensors()}

    def copy_pages(self, source: torch.Tensor, target: torch.Tensor) -> None:
        self.full.copy_pages(source, target)

    def save(self, pages: torch.Tensor, slots: torch.Tensor) -> RequestImage:
        """Pages and state slots of a retracted request, copied to the host."""
        return RequestImage(save_pages(self.full, pages), self.state.save_slots(slots))

    def load(self, image: RequestImage, pages: torch.Tensor, slots: torch.Tensor) -> None:
        """Restore a request into other pages and slots, bit for bit."""
        load_pages(self.full, image.pages, pages)
        self.state.load_slots(image.state, slots)
