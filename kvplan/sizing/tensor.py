"""One kind of tensor of a pool, planned without torch."""

from __future__ import annotations

import math

import msgspec

DTYPE_BYTES = {
    "int64": 8,
    "int32": 4,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "uint8": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e8m0fnu": 1,
    "float4_e2m1fn_x2": 1,
}


class TensorPlan(msgspec.Struct, frozen=True):
    """`copies` tensors alike, mostly one a layer. A view has a stride and owns no bytes."""

    pool: str
    name: str
    copies: int
    shape: tuple[int, ...]
    dtype: str
    view_stride: tuple[int, ...] | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of all of them; 0 for views."""
        if self.view_stride is not None:
            return 0
        return self.copies * math.prod(self.shape) * DTYPE_BYTES[self.dtype]
