"""How a launch is spread over GPUs, as a preset: server arguments by their field names."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from kvplan.spec.server import Count, MoeA2aBackend


class ParallelSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Widths of one launch; what is left out stays with the engine."""

    tp_size: Count = 1
    pp_size: Count | None = None
    dp_size: Count | None = None
    enable_dp_attention: bool | None = None
    enable_dp_lm_head: bool | None = None
    attn_cp_size: Count | None = None
    enable_prefill_cp: bool | None = None
    dcp_size: Count | None = None
    ep_size: Count | None = None
    moe_a2a_backend: MoeA2aBackend | None = None
    nnodes: Count | None = None
    pp_layer_partition: Annotated[tuple[Count, ...], Meta(min_length=1)] | None = None
    note: str | None = None  # what it is for


def parallel_arguments(spec: ParallelSpec) -> dict[str, Any]:
    """The server arguments that the preset sets."""
    return given(spec)


def given(spec: msgspec.Struct) -> dict[str, Any]:
    """Fields that have a value, the note aside."""
    return {
        name: getattr(spec, name)
        for name in spec.__struct_fields__
        if name != "note" and getattr(spec, name) is not None
    }
