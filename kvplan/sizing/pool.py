"""The sizes of one stage's pools: every number that the engine logs when it has sized them."""

from __future__ import annotations

from typing import Protocol

import msgspec

from kvplan.errors import CombinationError
from kvplan.sizing import dense
from kvplan.sizing.budget import Budget, Memory, kv_budget
from kvplan.sizing.capacities import CompressedPools, Split, TwoPools, UnifiedBuffer
from kvplan.sizing.cell import Cell
from kvplan.sizing.requests import Requests, running_requests
from kvplan.sizing.shortage import Shortage
from kvplan.sizing.stage import Stage


class StagePool(msgspec.Struct, frozen=True):
    """Capacities of one stage. `tokens` is the engine's max_total_num_tokens."""

    budget: Budget
    cell: Cell
    profiled_tokens: int  # from memory alone, before any cap
    tokens: int
    sliding: TwoPools | None
    compressed: CompressedPools | None
    requests: Requests
    c128_state_slots: int = 0
    unified: UnifiedBuffer | None = None


def size_stage(stage: Stage, memory: Memory) -> StagePool | Shortage:
    """One stage alone: its budget, its tokens under the user's cap, its requests."""
    budget = kv_budget(stage, memory)
    if isinstance(budget, Shortage):
        return budget
    profiled = pool_kind(stage).split_budget(stage, budget.num_bytes)
    if isinstance(profiled, Shortage):
        return profiled
    cap = stage.resolved.max_total_tokens
    return cap_stage(stage, budget, profiled, tokens_of(profiled) if cap is None else cap)


def cap_stage(stage: Stage, budget: Budget, profiled: Split, limit: int) -> StagePool | Shortage:
    """The same stage under an upper bound on its tokens (user cap, another stage's minimum)."""
    most = tokens_of(profiled)
    split = profiled if limit >= most else pool_kind(stage).resize(stage, limit)
    if isinstance(split, Shortage):
        return split
    tokens = tokens_of(split)
    if tokens <= 0:
        return no_tokens(stage, budget)
    requests = running_requests(stage.resolved, tokens, budget.state)
    if isinstance(requests, Shortage):
        return requests
    unified: UnifiedBuffer | None = None
    if stage.resolved.unified_memory:
        from kvplan.sizing.unified import unified_buffer

        buffer = unified_buffer(stage, budget, split, capped=limit < most)
        if isinstance(buffer, Shortage):
            return buffer
        unified = buffer
    elif isinstance(split, TwoPools):
        check_pages(stage, split)
    compressed, ring_slots = None, 0
    if isinstance(split, CompressedPools):
        from kvplan.sizing.compressed import c128_state_slots

        compressed, ring_slots = split, c128_state_slots(stage.resolved, requests.max_running)
        if stage.resolved.request_ring is not None:
            from kvplan.sizing.request_ring import with_requests

            compressed = with_requests(stage, split, requests.max_running)
    return StagePool(
        budget=budget,
        cell=pool_kind(stage).stage_cell(stage),
        profiled_tokens=most,
        tokens=tokens,
        sliding=split if isinstance(split, TwoPools) else None,
        compressed=compressed,
        requests=requests,
        c128_state_slots=ring_slots,
        unified=unified,
    )


def check_pages(stage: Stage, split: TwoPools) -> None:
    """A stage whose layers all slide hands out single tokens, refused once its pool is sized."""
    page = stage.resolved.page_size
    if not split.full_tokens and page > 1:
        raise CombinationError(
            f"layers that all slide take page_size 1 alone, not {page}",
            hint="set page_size 1, with an attention backend that takes it",
        )


class PoolKind(Protocol):
    """How a kind of model turns bytes into tokens; each kind is a module of its own."""

    def stage_cell(self, stage: Stage) -> Cell:
        """Bytes of one token of this stage over all its pools."""

    def split_budget(self, stage: Stage, budget_bytes: int) -> Split | Shortage:
        """Bytes into tokens."""

    def resize(self, stage: Stage, tokens: int) -> Split | Shortage:
        """Tokens into pools once a bound is known."""


def pool_kind(stage: Stage) -> PoolKind:
    """The module that sizes this model; a launch imports only its own."""
    if stage.model.compressed is not None:
        from kvplan.sizing import compressed

        return compressed
    if stage.model.sliding is not None:
        from kvplan.sizing import sliding

        return sliding
    return dense


def tokens_of(split: Split) -> int:
    """max_total_num_tokens: the full side, or the sliding one where no layer is full."""
    if isinstance(split, int):
        return split
    return split.full_tokens or split.sliding_tokens


def no_tokens(stage: Stage, budget: Budget) -> Shortage:
    cell = pool_kind(stage).stage_cell(stage).num_bytes
    return Shortage(
        what="tokens",
        problem=f"not one page of {stage.resolved.page_size} tokens fits the budget",
        have_bytes=budget.num_bytes,
        need_bytes=int(cell * stage.resolved.page_size),
        raise_flags=("--mem-fraction-static",),
    )
