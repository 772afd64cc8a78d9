"""State slots in a buffer that is shared: everything a slot holds is one run of bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from kvplan.errors import PoolError


class SlotBand:
    """Hands out (layers, slots, ...) views into a byte buffer, slot s at bytes s * slot_bytes."""

    def __init__(self, buffer: torch.Tensor, slot_bytes: int) -> None:
        self._buffer = buffer
        self.slot_bytes = slot_bytes
        self.num_slots = len(buffer) // slot_bytes
        self._used = 0

    def zeros(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A view of (layers, slots, ...) behind those handed out before; the buffer is zeroed already."""
        layers, slots, *row = shape
        width = math.prod(row)
        num_bytes = layers * width * dtype.itemsize
        if slots != self.num_slots or self._used + num_bytes > self.slot_bytes:
            raise PoolError(
                f"{tuple(shape)} {dtype} does not fit {self.num_slots} slots of {self.slot_bytes} bytes, {self._used} of them used"
            )
        if self.slot_bytes % dtype.itemsize or self._used % dtype.itemsize:
            raise PoolError(
                f"slots of {self.slot_bytes} bytes leave {dtype} unaligned",
                hint=f"pad the slot to a multiple of {dtype.itemsize} bytes",
            )
        elements = self._buffer[: self.num_slots * self.slot_bytes].view(dtype)
        strides = [math.prod(row[axis + 1 :]) for axis in range(len(row))]
        view = elements.as_strided(
            (layers, slots, *row),
            (width, self.slot_bytes // dtype.itemsize, *strides),
            self._used // dtype.itemsize,
        )
        self._used += num_bytes
        return view
