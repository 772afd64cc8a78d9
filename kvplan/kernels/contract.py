"""What every launcher asks of its tensors before it starts a kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from kvplan.errors import PoolError


def check_vectors(**vectors: Tensor) -> None:
    """Refuse anything but 1-D contiguous int64 tensors on one device. Reads no values: no sync."""
    device = next(iter(vectors.values())).device
    for name, vector in vectors.items():
        if vector.ndim != 1 or vector.dtype != torch.int64 or not vector.is_contiguous():
            raise PoolError(
                f"'{name}' is {vector.dtype} of shape {tuple(vector.shape)}, stride {vector.stride()}",
                hint="the kernels take contiguous 1-D int64 tensors",
            )
        check_device(name, vector, device)


def check_device(name: str, tensor: Tensor, device: torch.device) -> None:
    """Refuse a tensor that is not where the others are."""
    if tensor.device != device:
        raise PoolError(
            f"'{name}' is on {tensor.device}, the other arguments are on {device}",
            hint="move them to one device",
        )


def check_same_batch(**vectors: Tensor) -> int:
    """The common number of requests; differing ones are refused."""
    lengths = {name: len(vector) for name, vector in vectors.items()}
    if len(set(lengths.values())) > 1:
        raise PoolError(
            f"batches of different lengths: {lengths}", hint="one entry a request in each"
        )
    return next(iter(lengths.values()))


def check_rows(req_to_token: Tensor, device: torch.device) -> None:
    """Refuse rows that are not a 2-D int32 table on the given device."""
    if req_to_token.ndim != 2 or req_to_token.dtype != torch.int32:
        raise PoolError(
            f"'req_to_token' is {req_to_token.dtype} of shape {tuple(req_to_token.shape)}",
            hint="rows are a 2-D int32 table",
        )
    check_device("req_to_token", req_to_token, device)


def check_page_size(page_size: int) -> None:
    """Refuse a page of no tokens. Sizes that are no power of two are served."""
    if page_size < 1:
        raise PoolError(f"page size {page_size}", hint="a page holds at least one token")


def output(out: Tensor | None, like: Tensor, length: int) -> Tensor:
    """The caller's vector, if one was given and it has that length, else a new one."""
    if length < 0:
        raise PoolError(f"{length} new tokens", hint="lengths only grow")
    if out is None:
        return like.new_empty(length)
    check_vectors(like=like, out=out)
    if len(out) != length:
        raise PoolError(
            f"'out' has {len(out)} entries, the result has {length}", hint="give it that length"
        )
    return out
