"""Recurrent state of linear layers: slots that requests own, and what travels with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from kvplan.errors import PoolError
from kvplan.pools.base import LayerBuffer, PoolTensor, spans
from kvplan.pools.slot_band import SlotBand
from kvplan.pools.slot_tensors import (
    Sibling,
    SlotTensor,
    StateImage,
    commit_parts,
    copy_parts,
    load_parts,
    reset_parts,
    save_parts,
)
from kvplan.pools.storage import Storage
from kvplan.pools.write_loc import check_slots


class LayerState(NamedTuple):
    """One linear layer's state: conv windows (slots + 1, ...) and the recurrent part (slots + 1, ...)."""

    conv: tuple[torch.Tensor, ...]
    temporal: torch.Tensor


class StatePool:
    """State slots 1 .. slots of linear layers; slot 0 is the padding slot.

    conv holds (layers, slots + 1, *conv_shape) for each conv shape, temporal (layers, slots + 1,
    *temporal_shape). With draft_tokens, `running` requests and the padding row keep a snapshot per
    draft token; a draft that is a chain stores its overlapping conv windows once (`dedup_windows`).
    """

    page_size = 1
    no_host_form: str | None = None

    def __init__(
        self,
        *,
        slots: int,
        layer_ids: Sequence[int],
        conv_shapes: Sequence[tuple[int, int]],
        temporal_shape: Sequence[int],
        conv_dtype: torch.dtype,
        temporal_dtype: torch.dtype,
        storage: Storage,
        running: int = 0,
        draft_tokens: int = 0,
        dedup_windows: bool = False,
        band: SlotBand | None = None,
    ) -> None:
        """With `band`, what the slots hold lies in a buffer that other pools share."""
        if slots < 0:
            raise PoolError(f"the state slots must not be negative, they are {slots}")
        self.size = slots
        self.layer_ids = tuple(layer_ids)
        self.storage = storage
        self.running = running
        self.draft_tokens = draft_tokens
        self._local = {layer_id: index for index, layer_id in enumerate(self.layer_ids)}
        self._views: list[PoolTensor] = []
        layers = len(self.layer_ids)
        self._shared = band is not None
        place = band or storage
        self._conv = [
            SlotTensor(
                "conv",
                place.zeros((layers, slots + 1, *shape), conv_dtype),
                slot_axis=1,
                snapshots=self._conv_snapshots(shape, conv_dtype, dedup_windows),
            )
            for shape in conv_shapes
        ]
        snapshots = None
        if draft_tokens:
            shape = (layers, running + 1, draft_tokens, *temporal_shape)
            snapshots = self._listed("snapshot_temporal", storage.zeros(shape, temporal_dtype))
        temporal = place.zeros((layers, slots + 1, *temporal_shape), temporal_dtype)
        self._temporal = SlotTensor("temporal", temporal, slot_axis=1, snapshots=snapshots)
        self._siblings: list[Sibling] = []

    @property
    def num_pages(self) -> int:
        """Slots of the tensors, the padding slot included."""
        return self.size + 1

    def register(self, sibling: Sibling) -> None:
        """Attach a state that is cleared, copied and moved to the host with every slot."""
        for part in sibling.slot_tensors():
            rows = part.tensor.shape[part.slot_axis]
            if rows != self.num_pages:
                raise PoolError(
                    f"{part.name} has {rows} slots, the state pool has {self.num_pages}",
                    hint="size the sibling by the same number of slots",
                )
        self._siblings.append(sibling)

    def index(self, layer_id: int) -> int:
        """The place of a layer among the linear ones."""
        try:
            return self._local[layer_id]
        except KeyError:
            raise PoolError(
                f"layer {layer_id} has no recurrent state here",
                hint=f"its layers are {spans(self.layer_ids)}",
            ) from None

    def layer_state(self, layer_id: int) -> LayerState:
        """Views of one layer's state over all slots."""
        index = self.index(layer_id)
        return LayerState(
            tuple(part.tensor[index] for part in self._conv), self._temporal.tensor[index]
        )

    def slot_tensors(self) -> list[SlotTensor]:
        """Everything that a slot owns, siblings included."""
        siblings = [part for sibling in self._siblings for part in sibling.slot_tensors()]
        return [*self._conv, self._temporal, *siblings]

    def reset_slots(self, slots: torch.Tensor) -> None:
        """Blank some slots, as must be done before a new owner reads them."""
        self._check(slots)
        reset_parts(self.slot_tensors(), slots)

    def copy_slots(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copy source[i] over target[i]; the two do not overlap."""
        if source.shape != target.shape:
            raise PoolError(f"{len(source)} state slots do not pair with {len(target)}")
        self._check(source, target)
        copy_parts(self.slot_tensors(), source, target)

    def save_slots(self, slots: torch.Tensor) -> StateImage:
        """Some slots' state, copied to the host."""
        self._check(slots)
        return save_parts(self.slot_tensors(), slots)

    def load_slots(self, saved: StateImage, slots: torch.Tensor) -> None:
        """Put saved state into slots of this pool, the siblings' part with it."""
        self._check(slots)
        load_parts(self.slot_tensors(), saved, slots)

    def snapshots(self, layer_id: int) -> LayerState:
        """One layer's snapshots (running + 1, draft_tokens, ...), conv windows as overlapping views."""
        index = self.index(layer_id)
        if self._temporal.snapshots is None:
            raise PoolError("this state pool keeps no snapshots", hint="build it with draft_tokens")
        convs = tuple(part.snapshots[index] for part in self._conv if part.snapshots is not None)
        return LayerState(convs, self._temporal.snapshots[index])

    def commit_snapshots(
        self, rows: torch.Tensor, steps: torch.Tensor, slots: torch.Tensor
    ) -> None:
        """Make the state after draft token steps[i] of running row rows[i] that of slots[i]."""
        self._check(slots)
        commit_parts(self.slot_tensors(), rows, steps, slots)

    def tensors(self) -> list[PoolTensor]:
        """Every tensor, the siblings' and the overlapping views included."""
        own = [
            PoolTensor(part.name, self.layer_ids, part.tensor, is_view=self._shared)
            for part in (*self._conv, self._temporal)
        ]
        siblings = [entry for sibling in self._siblings for entry in sibling.tensors()]
        return [*own, *self._views, *siblings]

    def bytes(self) -> int:
        """Bytes of all tensors, views not counted."""
        return sum(entry.tensor.nbytes for entry in self.tensors() if not entry.is_view)

    def layer_buffers(self, layer_id: int) -> list[LayerBuffer]:
        """What a layer's slots take to the host; the siblings go with the first layer."""
        state = self.layer_state(layer_id)
        named = [("conv", tensor) for tensor in state.conv] + [("temporal", state.temporal)]
        buffers = [LayerBuffer(name, tensor, 1) for name, tensor in named if tensor.numel()]
        if layer_id == self.layer_ids[0]:
            buffers += [each for sibling in self._siblings for each in sibling.layer_buffers()]
        return buffers

    def _conv_snapshots(
        self, shape: tuple[int, int], dtype: torch.dtype, dedup: bool
    ) -> torch.Tensor | None:
        """Conv windows after each draft token; consecutive ones share all but one column."""
        if not self.draft_tokens:
            return None
        rows = (len(self.layer_ids), self.running + 1)
        if not dedup:
            stored = self.storage.zeros((*rows, self.draft_tokens, *shape), dtype)
            return self._listed("snapshot_conv", stored)
        channels, window = shape
        stored = self.storage.zeros((*rows, channels, self.draft_tokens + window - 1), dtype)
        self._listed("snapshot_conv", stored)
        by_layer, by_row, by_channel, by_column = stored.stride()
        windows = stored.as_strided(
            (*rows, self.draft_tokens, channels, window),
            (by_layer, by_row, by_column, by_channel, by_column),
        )
        return self._listed("snapshot_conv_window", windows, is_view=True)

    def _listed(self, name: str, tensor: torch.Tensor, *, is_view: bool = False) -> torch.Tensor:
        self._views.append(PoolTensor(name, self.layer_ids, tensor, is_view))
        return tensor

    def _check(self, *lists: torch.Tensor) -> None:
        for slots in lists:
            check_slots(slots, self.num_pages, "the state slot list")
