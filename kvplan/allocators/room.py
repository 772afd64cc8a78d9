"""What torch says when a device has no room, said as a refusal that names what was asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from kvplan.errors import DeviceError

# the CPU allocator has no exception class of its own, nor have sizes beyond int64
OUT_OF_MEMORY_WORDS = ("can't allocate memory", "overflow")


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether torch refused for want of memory."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return any(words in str(error) for words in OUT_OF_MEMORY_WORDS)


@contextlib.contextmanager
def room_for(what: str, device: torch.device) -> Iterator[None]:
    """Make the tables of `what` inside: DeviceError where the device has no room for them."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise DeviceError(
            f"{device} has no room for the tables of {what}", hint="ask for a smaller pool"
        ) from error
