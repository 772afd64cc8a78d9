"""A card as its driver reports it."""

from typing import Annotated

import msgspec
from msgspec import Meta


class GpuSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One GPU: name, memory in MiB, and the compute capability times ten (None: not NVIDIA)."""

    name: str
    memory_mib: Annotated[int, Meta(ge=1024, le=1 << 24)]
    sm: Annotated[int, Meta(ge=30, le=299)] | None = None
    source: str | None = None
