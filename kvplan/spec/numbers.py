"""Bounds of the numbers in a spec: wide enough for any model, narrow enough to refuse slips."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Whole = Annotated[int, Meta(ge=0, le=1 << 40)]
Count = Annotated[int, Meta(ge=1, le=1 << 40)]
NumBytes = Annotated[int, Meta(ge=0, le=1 << 60)]
LayerCount = Annotated[int, Meta(ge=1, le=4096)]
LayerId = Annotated[int, Meta(ge=0, le=4095)]
LayerIds = Annotated[tuple[LayerId, ...], Meta(max_length=4096)]
