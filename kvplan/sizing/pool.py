"""The sizes of one stage's pools: every number that the engine logs when it has sized them."""

from __future__ import annotations

import msgspec

from kvplan.sizing.budget import Budget, Memory, kv_budget
from kvplan.sizing.cell import Cell, dense_cell
from kvplan.sizing.compressed import (
    CompressedPools,
    c128_state_slots,
    compressed_cell,
    size_compressed,
    split_compressed,
)
from kvplan.sizing.requests import Requests, running_requests
from kvplan.sizing.shortage import Shortage
from kvplan.sizing.sliding import TwoPools, resize_sliding, size_sliding, sliding_cell
from kvplan.sizing.stage import Stage
from kvplan.units import floor_page

INT64_MAX = 2**63 - 1


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


Split = TwoPools | CompressedPools | int


def size_stage(stage: Stage, memory: Memory) -> StagePool | Shortage:
    """One stage alone: its budget, its tokens under the user's cap, its requests."""
    budget = kv_budget(stage, memory)
    if isinstance(budget, Shortage):
        return budget
    profiled = split_budget(stage, budget.num_bytes)
    if isinstance(profiled, Shortage):
        return profiled
    cap = stage.resolved.max_total_tokens
    return cap_stage(stage, budget, profiled, tokens_of(profiled) if cap is None else cap)


def cap_stage(stage: Stage, budget: Budget, profiled: Split, limit: int) -> StagePool | Shortage:
    """The same stage under an upper bound on its tokens (user cap, another stage's minimum)."""
    most = tokens_of(profiled)
    split = profiled if limit >= most else resize(stage, limit)
    if isinstance(split, Shortage):
        return split
    tokens = tokens_of(split)
    if tokens <= 0:
        return no_tokens(stage, budget)
    requests = running_requests(stage.resolved, tokens, budget.state)
    if isinstance(requests, Shortage):
        return requests
    compressed = split if isinstance(split, CompressedPools) else None
    return StagePool(
        budget=budget,
        cell=stage_cell(stage),
        profiled_tokens=most,
        tokens=tokens,
        sliding=split if isinstance(split, TwoPools) else None,
        compressed=compressed,
        requests=requests,
        c128_state_slots=c128_state_slots(stage.resolved, requests.max_running)
        if compressed
        else 0,
    )


def stage_cell(stage: Stage) -> Cell:
    """Bytes of one token of this stage, whatever its pools."""
    if stage.model.compressed is not None:
        return compressed_cell(stage)
    if stage.model.sliding is not None:
        return sliding_cell(stage).cell()
    return dense_cell(stage)


def split_budget(stage: Stage, budget_bytes: int) -> Split | Shortage:
    """Bytes into tokens, per kind of model."""
    if stage.model.compressed is not None:
        return size_compressed(stage, budget_bytes)
    if stage.model.sliding is not None:
        return size_sliding(stage, budget_bytes)
    cell = dense_cell(stage).num_bytes
    tokens = int(budget_bytes // cell) if cell else tokens_without_kv(stage)
    return floor_page(tokens, stage.resolved.page_size)


def resize(stage: Stage, tokens: int) -> Split | Shortage:
    """Tokens into pools once a bound is known."""
    if stage.model.compressed is not None:
        return split_compressed(stage, tokens)
    if stage.model.sliding is not None:
        return resize_sliding(stage, tokens)
    return floor_page(tokens, stage.resolved.page_size)


def tokens_of(split: Split) -> int:
    """max_total_num_tokens: the full side, or the sliding one where no layer is full."""
    if isinstance(split, int):
        return split
    return split.full_tokens or split.sliding_tokens


def tokens_without_kv(stage: Stage) -> int:
    """A stage without attention layers bounds nothing; a model without any takes its context."""
    linear, resolved = stage.model.linear, stage.resolved
    if linear is not None and linear.full_attention_layers and resolved.widths.pp > 1:
        return INT64_MAX
    return resolved.max_total_tokens or resolved.context_length


def no_tokens(stage: Stage, budget: Budget) -> Shortage:
    cell = stage_cell(stage).num_bytes
    return Shortage(
        what="tokens",
        problem=f"not one page of {stage.resolved.page_size} tokens fits the budget",
        have_bytes=budget.num_bytes,
        need_bytes=int(cell * stage.resolved.page_size),
        raise_flags=("--mem-fraction-static",),
    )
