"""Which scale layouts an nvfp4 cache owns, by the backends that read it."""

from __future__ import annotations

import msgspec

from kvplan.sizing.resolved import Resolved


class Nvfp4Layouts(msgspec.Struct, frozen=True):
    """Linear scales serve dequantisation and 12.x, native ones the 10.x decode kernels."""

    linear: bool
    native: bool
    workspace: bool  # an fp8 copy of one layer, shared by all: prefill through flashinfer


def nvfp4_layouts(resolved: Resolved) -> Nvfp4Layouts:
    """Decode always reads FP4 natively; prefill through flashinfer dequantises into fp8."""
    native = resolved.gpu_sm is not None and resolved.gpu_sm // 10 == 10
    prefill = resolved.prefill_attention_backend or resolved.attention_backend
    workspace = prefill == "flashinfer"
    return Nvfp4Layouts(linear=workspace or not native, native=native, workspace=workspace)
