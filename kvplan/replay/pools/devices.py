"""Where the pools of a replay are built, and which code computes their slots there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

from kvplan.allocators.backend import Backend
from kvplan.errors import DeviceError
from kvplan.kernels.alloc_decode import alloc_decode_kernel
from kvplan.pools.storage import resolve_device
from kvplan.replay.trace import INTERPRETED


class Place(NamedTuple):
    """A torch device, and the reference or the kernels on it."""

    device: torch.device
    backend: Backend
    name: str


def place_named(name: str, local_rank: int = 0) -> Place:
    """`auto`, `cuda`, `cuda:N`, `cpu`, `meta`, or `interpret`: the kernels in Triton's interpreter.

    `cuda` is the card of the local rank.

    DeviceError where the device is absent, or where the kernels are compiled already.
    """
    if name == INTERPRETED:
        if hasattr(alloc_decode_kernel, "device_caches"):
            raise DeviceError(
                "Triton was loaded without its interpreter",
                hint="set TRITON_INTERPRET=1 before the process starts",
            )
        return Place(torch.device("cpu"), Backend.KERNEL, INTERPRETED)
    device = resolve_device(name)
    if device.type == "cuda" and device.index is None:
        device = resolve_device(torch.device("cuda", local_rank))
    backend = Backend.KERNEL if device.type == "cuda" else Backend.REFERENCE
    return Place(device, backend, str(device))


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on a single thread: the operations of a replay are too small to be shared."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
