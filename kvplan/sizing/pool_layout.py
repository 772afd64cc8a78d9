"""The pools' layout: every tensor of a stage with the layers it serves, and what they sum up to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kvplan.id_runs import runs
from kvplan.sizing.allocator_tensors import ALLOCATOR, TITLES, allocator_tensors
from kvplan.sizing.compressed_tensors import ring_tensors
from kvplan.sizing.draft_tensors import draft_tensors
from kvplan.sizing.ledger import Ledger, title_of
from kvplan.sizing.plan import Plan, StagePlan
from kvplan.sizing.stage import Stage
from kvplan.sizing.tensor import TensorPlan
from kvplan.sizing.tensors import stage_tensors


class LaidTensor(NamedTuple):
    """A tensor with the layers it serves, in the order of its copies where it has several.

    `slides` marks tensors whose rows are those of the sliding side.
    """

    tensor: TensorPlan
    layers: tuple[int, ...] = ()
    slides: bool = False

    @property
    def stride(self) -> tuple[int, ...]:
        """Elements between neighbours along each axis."""
        return self.tensor.view_stride or contiguous(self.tensor.shape)

    @property
    def layers_of_copies(self) -> tuple[tuple[int, ...], ...]:
        """Layers of each copy: one each, or all of them of a single tensor."""
        if self.tensor.copies == len(self.layers):
            return tuple((layer,) for layer in self.layers)
        return (self.layers,) * self.tensor.copies


class Total(NamedTuple):
    """Bytes of one use of the card: of its tensors, and as the ledger has them."""

    name: str
    num_bytes: int
    ledger_bytes: int


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a dense tensor, in elements, as torch counts them where an axis is empty."""
    extents = [max(1, extent) for extent in shape]
    return tuple(math.prod(extents[axis + 1 :]) for axis in range(len(shape)))


def stage_layout(plan: Plan, planned: StagePlan) -> tuple[LaidTensor, ...]:
    """Rows, state, KV, rings, the draft's KV, then the allocator's own tables."""
    tensors = (*stage_tensors(plan, planned), *ring_tensors(planned))
    own = (target_tensor(planned.stage, tensor) for tensor in tensors)
    allocators = (LaidTensor(tensor) for tensor in allocator_tensors(planned))
    return (*own, *draft_layout(plan, planned), *allocators)


def target_tensor(stage: Stage, tensor: TensorPlan) -> LaidTensor:
    """One of the target's tensors with its layers."""
    compressed = stage.model.compressed
    window = tensor.pool == "sliding" or (tensor.pool == "c4" and tensor.name.endswith("state"))
    if tensor.pool in ("rows", "scratch"):
        return LaidTensor(tensor)
    if tensor.pool == "state":
        return LaidTensor(tensor, () if tensor.name == "free_slots" else stage.layers.linear)
    if compressed is not None:
        window_of = 0 if stage.resolved.request_ring is not None else None
        ratio = {"c4": 4, "c128": 128}.get(tensor.pool, window_of)
        layers = [each for each in stage.span if ratio in (None, compressed.ratios[each])]
        return LaidTensor(tensor, tuple(layers), window)
    return LaidTensor(tensor, kv_layers(stage, tensor), window)


def kv_layers(stage: Stage, tensor: TensorPlan) -> tuple[int, ...]:
    """Layers of a KV tensor; those that hold KV several times count several times."""
    layers, per_layer = stage.layers.full, stage.model.kv_layers_per_layer
    if tensor.pool == "sliding":
        layers = stage.layers.sliding
    elif tensor.pool == "index":
        layers = index_layers(stage, tensor.name)
    elif stage.model.sparse is not None and stage.resolved.hisparse is not None:
        layers = swap_layers(stage, swapped=tensor.pool != "dense")
    elif tensor.pool == "unified":
        layers = tuple(sorted((*layers, *stage.layers.sliding, *stage.layers.linear)))
    elif tensor.name == "index_key":
        owns = tensor.shape[0] > 0
        layers = tuple(each for each in layers if (each in stage.layers.indexer) == owns)
    return tuple(layer * per_layer + turn for layer in layers for turn in range(per_layer))


def swap_layers(stage: Stage, *, swapped: bool) -> tuple[int, ...]:
    """MiniMax under HiSparse: sparse layers swap, dense ones keep every logical token."""
    sparse = stage.model.sparse
    assert sparse is not None
    return tuple(each for each in stage.layers.full if (each in sparse.sparse_layers) == swapped)


def index_layers(stage: Stage, name: str) -> tuple[int, ...]:
    """Sparse layers of the stage; some keep the keys of their index alone."""
    sparse = stage.model.sparse
    assert sparse is not None
    local = (each for each in sparse.sparse_layers if each in stage.span)
    return tuple(
        each for each in local if name == "index_k" or each not in sparse.index_k_only_layers
    )


def draft_layout(plan: Plan, planned: StagePlan) -> Iterator[LaidTensor]:
    """The draft's tensors: its own layers, those of the full side first."""
    drafts = planned.stage.draft_layers
    sides: list[tuple[int, bool]] = []
    if planned.pool.compressed is not None:
        sides = [(1, True)]
    elif drafts is not None:
        full = drafts.total - drafts.sliding
        sides = [(full, False)] if full > 0 and planned.pool.tokens else []
        sides += [(drafts.sliding, True)] if drafts.sliding else []
    met: Counter[tuple[str, bool]] = Counter()
    for tensor in draft_tensors(plan, planned):
        key = (tensor.name, bool(tensor.shape[0]))
        layers, slides = sides[met[key]]
        met[key] += 1
        yield LaidTensor(tensor, tuple(range(layers)), slides)


def totals(laid: tuple[LaidTensor, ...], books: Ledger) -> list[Total]:
    """Bytes per use of the card, in the ledger's names and order."""
    sums: Counter[str] = Counter()
    for each in laid:
        if each.tensor.view_stride is None:
            sums[title(each.tensor)] += each.tensor.num_bytes
    booked = {entry.name: entry.num_bytes for entry in books.entries}
    names = [name for name in booked if name in sums]
    names += [name for name in sums if name not in booked]
    return [Total(name, sums[name], booked.get(name, 0)) for name in names]


def title(tensor: TensorPlan) -> str:
    """The ledger's name for a tensor."""
    if tensor.pool == ALLOCATOR:
        return TITLES.get(tensor.name, "page free lists")
    return title_of(tensor)


def spans(layers: Iterable[int]) -> str:
    """Layers in words: `0–3, 7`."""
    return ", ".join(
        f"{first}–{first + count - 1}" if count > 1 else f"{first}"
        for first, count in runs(sorted(layers))
    )
