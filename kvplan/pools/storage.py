"""Where a pool's tensors are made: a device, and two optional CUDA switches."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kvplan.allocators.room import is_out_of_memory
from kvplan.errors import DeviceError, MissingExtra
from kvplan.units import gib

REGION_TAG = "kv_cache"
DEVICES = ("auto", "cuda", "cpu", "meta")


@dataclass(frozen=True, slots=True)
class Storage:
    """A device to make zeroed tensors on; `mem_pool` and `saver` are off unless asked for."""

    device: torch.device
    mem_pool: Any = None  # torch.cuda.MemPool that the tensors come from
    saver: Any = None  # torch_memory_saver: the tensors can be released and resumed

    def zeros(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A zeroed tensor, or DeviceError when the device has no room for it."""
        with self.region():
            try:
                stored = torch.uint8 if dtype.itemsize == 1 else dtype  # fp4 cannot be filled
                return torch.zeros(tuple(shape), dtype=stored, device=self.device).view(dtype)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                raise out_of_memory(shape, dtype, self.device) from error

    @contextlib.contextmanager
    def region(self) -> Iterator[None]:
        """Allocations inside come from the memory pool and belong to the releasable region."""
        with contextlib.ExitStack() as stack:
            if self.saver is not None:
                stack.enter_context(self.saver.region(tag=REGION_TAG))
            if self.mem_pool is not None:
                stack.enter_context(torch.cuda.use_mem_pool(self.mem_pool))
            yield

    def release(self) -> None:
        """Give the releasable region's memory back; its contents are lost."""
        self._saver().pause(tag=REGION_TAG)

    def resume(self) -> None:
        """Take memory for the released region again, at the same addresses."""
        self._saver().resume(tag=REGION_TAG)

    def _saver(self) -> Any:
        if self.saver is None:
            raise DeviceError(
                "these pools are not releasable", hint="build them with releasable=True"
            )
        return self.saver


def open_storage(
    device: str | torch.device = "auto", *, custom_pool: bool = False, releasable: bool = False
) -> Storage:
    """Storage on `auto`, `cuda`, `cuda:N`, `cpu` or `meta`; refused where the device is absent.

    custom_pool takes the tensors from a torch.cuda.MemPool of their own, releasable from a
    region that torch_memory_saver can release; both need CUDA.
    """
    resolved = resolve_device(device)
    for switch, asked in (("custom_pool", custom_pool), ("releasable", releasable)):
        if asked and resolved.type != "cuda":
            raise DeviceError(
                f"{switch} needs a CUDA device, the pools are on {resolved}",
                hint=f"use device cuda, or leave {switch} off",
            )
    return Storage(
        device=resolved,
        mem_pool=torch.cuda.MemPool() if custom_pool else None,
        saver=load_saver() if releasable else None,
    )


def resolve_device(device: str | torch.device) -> torch.device:
    """The torch device meant; `auto` is CUDA where there is one, else the CPU."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        resolved = torch.device(device)
    except RuntimeError as error:
        raise DeviceError(
            f"unknown device '{device}'", hint=f"one of: {', '.join(DEVICES)}"
        ) from error
    if resolved.type not in DEVICES:
        raise DeviceError(
            f"pools cannot be built on '{device}'", hint=f"one of: {', '.join(DEVICES)}"
        )
    if resolved.type == "cuda":
        check_cuda(resolved)
    return resolved


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype that a plan names."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def check_cuda(device: torch.device) -> None:
    """Refuse a CUDA device that this machine or this torch build does not have."""
    if not torch.cuda.is_available():
        raise DeviceError(
            "CUDA was asked for and there is none here",
            hint="use --device cpu or meta, or install a CUDA build of torch",
        )
    if (device.index or 0) >= torch.cuda.device_count():
        raise DeviceError(
            f"there is no {device}", hint=f"this machine has {torch.cuda.device_count()} of them"
        )


def load_saver() -> Any:
    """torch_memory_saver's singleton."""
    try:
        return importlib.import_module("torch_memory_saver").torch_memory_saver
    except ImportError as error:
        raise MissingExtra(
            "a releasable region needs torch_memory_saver, which is not installed",
            hint="pip install torch-memory-saver, or leave releasable off",
        ) from error


def out_of_memory(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> DeviceError:
    num_bytes = dtype.itemsize
    for extent in shape:
        num_bytes *= extent
    return DeviceError(
        f"{device} has no room for a tensor of {tuple(shape)} {dtype}, {gib(num_bytes):.2f} GiB",
        hint="use --device meta for the layout alone, or --kv-scale for small buffers",
    )
