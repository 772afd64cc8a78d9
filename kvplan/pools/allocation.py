"""Pools built for real, held against the plan tensor by tensor and to the allocator's own count."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import torch

from kvplan.pools.build import Pools, build
from kvplan.pools.storage import resolve_device
from kvplan.sizing.allocator_tensors import ALLOCATOR
from kvplan.sizing.plan import Plan
from kvplan.sizing.pool_layout import LaidTensor, stage_layout
from kvplan.sizing.tensor import DTYPE_BYTES

Key = tuple[str, str]  # pool and name
Form = tuple[tuple[int, ...], tuple[int, ...], str, tuple[int, ...], bool]


COUNTS = ("requested", "allocated", "reserved")


class ComparedTensor(NamedTuple):
    """All tensors of one name in a pool; `difference` is empty where they are as planned."""

    pool: str
    name: str
    planned_bytes: int
    built_bytes: int
    difference: str


class CudaBytes(NamedTuple):
    """What the caching allocator counts for the pools: asked of it, handed out, taken from the driver."""

    planned: int  # of the tensors that lie on the device
    requested: int
    allocated: int
    reserved: int


class Allocation(NamedTuple):
    """What came of building one stage. `cuda` is None on other devices."""

    device: str
    kv_scale: bool
    tensors: tuple[ComparedTensor, ...]
    cuda: CudaBytes | None

    @property
    def as_planned(self) -> bool:
        """Whether every tensor, and the allocator's count, is the planned one."""
        exact = self.cuda is None or self.cuda.planned == self.cuda.requested
        return exact and not any(each.difference for each in self.tensors)


def allocate(plan: Plan, device: str, *, pp_rank: int = 0, kv_scale: bool = False) -> Allocation:
    """Build a stage's pools, compare them, and let them go again.

    DeviceError where the device is absent or has no room.
    """
    place = resolve_device(device)
    before = cuda_counts(place)
    pools = build(plan, place, pp_rank=pp_rank, kv_scale=kv_scale)
    after = cuda_counts(place)
    return Allocation(
        device=str(place),
        kv_scale=kv_scale,
        tensors=compare(stage_layout(pools.plan, pools.stage), pools),
        cuda=cuda_bytes(pools, before, after) if place.type == "cuda" else None,
    )


def compare(laid: Iterable[LaidTensor], pools: Pools) -> tuple[ComparedTensor, ...]:
    """Planned and built tensors side by side, in the plan's order."""
    planned, built = planned_forms(laid), built_forms(pools)
    return tuple(
        ComparedTensor(
            pool=pool,
            name=name,
            planned_bytes=form_bytes(planned.get((pool, name), Counter())),
            built_bytes=form_bytes(built.get((pool, name), Counter())),
            difference=difference(
                planned.get((pool, name), Counter()), built.get((pool, name), Counter())
            ),
        )
        for pool, name in {**planned, **built}
    )


def planned_forms(laid: Iterable[LaidTensor]) -> dict[Key, Counter[Form]]:
    """The plan's tensors by name: layers, shape, dtype, stride, view."""
    forms: dict[Key, Counter[Form]] = {}
    for each in laid:
        tensor = each.tensor
        if tensor.pool == ALLOCATOR:
            continue
        found = forms.setdefault((tensor.pool, tensor.name), Counter())
        for layers in each.layers_of_copies:
            view = tensor.view_stride is not None
            found[form(layers, tensor.shape, tensor.dtype, each.stride, view)] += 1
    return forms


def built_forms(pools: Pools) -> dict[Key, Counter[Form]]:
    """The same of tensors that are there."""
    forms: dict[Key, Counter[Form]] = {}
    for pool, entries in pools.parts().items():
        for entry in entries:
            found = forms.setdefault((pool, entry.name), Counter())
            dtype = str(entry.tensor.dtype).removeprefix("torch.")
            shape, stride = tuple(entry.tensor.shape), tuple(entry.tensor.stride())
            layers = () if pool == "rows" else entry.layers
            found[form(layers, shape, dtype, stride, entry.is_view)] += 1
    return forms


def form(
    layers: tuple[int, ...],
    shape: tuple[int, ...],
    dtype: str,
    stride: tuple[int, ...],
    is_view: bool,
) -> Form:
    """What is compared of a tensor; the strides of an empty one mean nothing."""
    return layers, shape, dtype, stride if math.prod(shape) else (), is_view


def form_bytes(forms: Counter[Form]) -> int:
    """Bytes of some tensors, views not counted."""
    total = 0
    for (_, shape, dtype, _, view), count in forms.items():
        total += 0 if view else count * math.prod(shape) * DTYPE_BYTES[dtype]
    return total


def difference(planned: Counter[Form], built: Counter[Form]) -> str:
    """The first tensor that is planned and not there, and the first that is there and not planned."""
    missing, extra = list(planned - built), list(built - planned)
    words = [f"planned {described(each)}" for each in missing[:1]]
    words += [f"built {described(each)}" for each in extra[:1]]
    return ", ".join(words)


def described(each: Form) -> str:
    layers, shape, dtype, stride, _ = each
    where = f" for layer {layers[0]}" if len(layers) == 1 else ""
    return f"{shape} {dtype} of strides {stride}{where}"


def cuda_counts(device: torch.device) -> Counter[str]:
    """The caching allocator's live bytes: asked for, handed out, taken from the driver."""
    if device.type != "cuda":
        return Counter()
    counts = torch.cuda.memory_stats(device)
    return Counter({name: counts.get(f"{name}_bytes.all.current", 0) for name in COUNTS})


def cuda_bytes(pools: Pools, before: Counter[str], after: Counter[str]) -> CudaBytes:
    """What building took, beside the bytes of the tensors that lie on the device."""
    planned = sum(
        entry.tensor.nbytes
        for entry in pools.tensors()
        if entry.tensor.is_cuda and not entry.is_view
    )
    if pools.shared is not None:
        planned += pools.shared.table_bytes
    return CudaBytes(planned, *(after[name] - before[name] for name in COUNTS))
