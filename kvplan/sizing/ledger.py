"""Where every byte of one GPU goes; the entries add up to the card exactly."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kvplan.sizing.allocator_tensors import TITLES as TABLES
from kvplan.sizing.allocator_tensors import allocator_tensors
from kvplan.sizing.plan import Plan, StagePlan
from kvplan.sizing.tensor import TensorPlan
from kvplan.sizing.tensors import stage_tensors
from kvplan.units import GIB, MIB

TITLES = {
    ("kv", "k"): "KV",
    ("kv", "v"): "KV",
    ("kv", "latent"): "KV",
    ("kv", "index_key"): "index keys",
    ("index", "index_k"): "index keys",
    ("index", "index_v"): "index keys",
    ("full", "k"): "full KV",
    ("full", "v"): "full KV",
    ("sliding", "k"): "sliding KV",
    ("sliding", "v"): "sliding KV",
    ("sliding", "latent"): "sliding KV",
    ("sliding", "rope"): "sliding KV",
    ("c4", "latent"): "c4 KV",
    ("c4", "rope"): "c4 KV",
    ("c128", "rope"): "c128 KV",
    ("c4", "index_key"): "index keys",
    ("c4", "state"): "compression state",
    ("c4", "index_state"): "compression state",
    ("c128", "latent"): "c128 KV",
    ("c128", "state"): "compression state",
    ("state", "conv"): "recurrent state",
    ("state", "temporal"): "recurrent state",
    ("state", "free_slots"): "free lists",
    ("rows", "req_to_token"): "req_to_token",
    ("unified", "buffer"): "unified pool",
    ("scratch", "k"): "gather scratch",
    ("scratch", "v"): "gather scratch",
    ("scratch", "latent"): "gather scratch",
    ("scratch", "index_key"): "gather scratch",
}
POOL_TITLES = {
    "kv": "KV",
    "dense": "KV",
    "full": "full KV",
    "sliding": "sliding KV",
    "state": "snapshots",
}


class Entry(msgspec.Struct, frozen=True):
    """One use of the card's memory."""

    name: str
    num_bytes: int
    budgeted: bool  # paid from the KV budget; the rest comes out of slack or weights
    note: str = ""


class Ledger(msgspec.Struct, frozen=True):
    """All uses of one card, largest concerns first as they are allocated."""

    total_bytes: int
    entries: tuple[Entry, ...]
    overrun_bytes: int  # pool tensors beyond what the engine budgeted for them

    @property
    def left_bytes(self) -> int:
        """What stays for graphs and activations; below 0 the card cannot hold the rest."""
        return self.entries[-1].num_bytes

    def bytes_of(self, name: str) -> int:
        """Bytes of one entry; 0 where the launch has none."""
        return sum(entry.num_bytes for entry in self.entries if entry.name == name)


def ledger(plan: Plan, stage: StagePlan) -> Ledger:
    """Every byte of the card of one stage."""
    total = plan.gpu.memory_mib * MIB
    pre, post = int(plan.memory.pre_load_gib * GIB), int(plan.memory.post_load_gib * GIB)
    pools = pool_entries(all_tensors(plan, stage))
    entries = [
        Entry("driver and context", total - pre, False),
        Entry("weights", pre - post, False),
        *pools,
        *bookkeeping(stage),
        *swap_entries(plan, stage),
    ]
    budget = stage.pool.budget
    reservation = int(budget.multimodal_gib * GIB)
    if reservation:
        entries.append(Entry("multimodal cache", reservation, False))
    spent = sum(entry.num_bytes for entry in entries if entry.budgeted)
    allowed = int((plan.memory.post_load_gib - budget.slack_gib - budget.multimodal_gib) * GIB)
    unused = max(0, allowed - spent)
    entries.append(Entry("unused budget", unused, False, "less than a page, or a cap"))
    rest = total - sum(entry.num_bytes for entry in entries)
    entries.append(Entry("graphs and activations", rest, False, "what mem_fraction_static leaves"))
    return Ledger(total, tuple(entries), max(0, spent - allowed))


def all_tensors(plan: Plan, stage: StagePlan) -> tuple[TensorPlan, ...]:
    """The target's tensors, then compression state and the draft's, where there are any."""
    tensors = stage_tensors(plan, stage)
    if stage.pool.compressed is not None:
        from kvplan.sizing.compressed_tensors import ring_tensors

        tensors += tuple(ring_tensors(stage))
    if stage.stage.draft_layers is not None:
        from kvplan.sizing.draft_tensors import draft_tensors

        tensors += tuple(draft_tensors(plan, stage))
    return tensors


def pool_entries(tensors: tuple[TensorPlan, ...]) -> list[Entry]:
    """Tensors summed by what a reader calls them."""
    sums: dict[str, int] = {}
    for tensor in tensors:
        if tensor.view_stride is not None:
            continue
        title = title_of(tensor)
        sums[title] = sums.get(title, 0) + tensor.num_bytes
    outside = {"req_to_token", "request rows", "free lists"}
    return [Entry(title, num_bytes, title not in outside) for title, num_bytes in sums.items()]


def title_of(tensor: TensorPlan) -> str:
    """The ledger's name for a tensor: scales and workspaces belong to their pool."""
    known = TITLES.get((tensor.pool, tensor.name))
    if known is not None:
        return known
    return POOL_TITLES.get(tensor.pool, "request rows" if tensor.pool == "rows" else tensor.pool)


def swap_entries(plan: Plan, stage: StagePlan) -> Iterator[Entry]:
    """What HiSparse keeps on the device for its request rows."""
    if plan.resolved.hisparse is None:
        return
    from kvplan.sizing.hisparse import buffer_bytes

    yield Entry("HiSparse buffers", buffer_bytes(plan, stage), False, f"{plan.rows:,} request rows")


def bookkeeping(stage: StagePlan) -> Iterator[Entry]:
    """What the allocators keep, summed by what a reader calls it."""
    sums: dict[str, int] = {}
    for tensor in allocator_tensors(stage):
        title = TABLES.get(tensor.name, "page free lists")
        sums[title] = sums.get(title, 0) + tensor.num_bytes
    for title, num_bytes in sums.items():
        yield Entry(title, num_bytes, False)
