"""Vectors of ids that allocators take, and the slots of whole pages."""

from __future__ import annotations

import torch
from torch import Tensor

from kvplan.errors import PoolError


def check_ids(name: str, ids: Tensor) -> None:
    """Refuse anything but a row of int64 ids, as rows of int32 slots would be. Reads no values."""
    if ids.dtype != torch.int64 or ids.ndim != 1:
        raise PoolError(
            f"'{name}' is {ids.dtype} of shape {tuple(ids.shape)}",
            hint="allocators take 1-D int64 tensors; slots read from req_to_token need .long()",
        )


def slots_of(pages: Tensor, page_size: int) -> Tensor:
    """All slots of the pages, (num_pages, page_size)."""
    return pages[:, None] * page_size + torch.arange(page_size, device=pages.device)
