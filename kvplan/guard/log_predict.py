"""Each logged figure that a plan predicts: from the memory, from the log's own tokens, or from the launch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from kvplan.guard.cause_case import Case
from kvplan.guard.log_figures import draft_figures, target_figures
from kvplan.guard.log_rows import Number, Row, row
from kvplan.guard.server_log import Figure, ServerLog
from kvplan.sizing.budget import Memory, smallest_fraction
from kvplan.sizing.memory import loaded_weights
from kvplan.sizing.plan import Plan, StagePlan
from kvplan.sizing.pool import StagePool
from kvplan.sizing.tensors import stage_tensors
from kvplan.units import GIB

# the log's names of the pool's length, the first that it prints counts
TOKENS = (
    "max_total_num_tokens", "num_tokens", "full_size", "full_layer_tokens", "compressed_full", "full_token",
)  # fmt: skip
FROM_LAUNCH = ("max_running_requests", "chunked_prefill_size", "max_prefill_tokens", "context_len")
SPARSE_LABEL = "MiniMax"
LOADED_GIB = 0.1  # buffers that come with the weights
AFTER_POOL_GIB = 0.5  # workspaces and small allocations that no plan counts
STATE_STEPS = 64  # points between the least and the most memory of a hybrid model
STAGE = re.compile(r"\bPP(\d{1,4})\b")


def predictions(case: Case) -> Iterator[Row]:
    """All rows in the order in which a server comes to them."""
    yield from weight_rows(case)
    yield from memory_rows(case)
    yield from failure_rows(case)
    if case.layout is not None:
        for stage in case.layout.stages:
            yield from stage_rows(case, case.layout, stage)


def weight_rows(case: Case) -> Iterator[Row]:
    """Logged weights beside their estimate; the plan uses the log's memory, so they decide nothing."""
    sizing = case.sizing
    parts = loaded_weights(sizing.model, sizing.draft, sizing.resolved.widths, loads_draft=True)
    for part, is_draft in zip(parts, (False, True), strict=False):
        figure = case.log.get("weights_gib", draft=is_draft)
        if figure is not None:
            bounds = (part.low_bytes / GIB - LOADED_GIB, part.high_bytes / GIB + LOADED_GIB)
            size = part.num_bytes / GIB
            yield row(figure, size, basis="estimate", bounds=bounds, counts=False)


def pool_length(log: ServerLog) -> Figure | None:
    """The figure that says how many tokens the pool holds."""
    return next((figure for name in TOKENS if (figure := log.get(name)) is not None), None)


def memory_rows(case: Case) -> Iterator[Row]:
    """What follows from the free memory: tokens, state slots, a printed budget."""
    tokens, nominal = pool_length(case.log), case.plan
    if nominal is None or tokens is None or case.tokens is None:
        return
    plans = [nominal, *between(case)]
    known = case.measured.complete
    basis = "memory" if known else "estimate"
    yield row(
        tokens, nominal.tokens, basis=basis, bounds=span([plan.tokens for plan in plans]),
        counts=known, name="max_total_num_tokens",
    )  # fmt: skip
    for name, read in FROM_MEMORY.items():
        figure, values = case.log.get(name), [read(plan.stages[0].pool) for plan in plans]
        if figure is not None and values[0] is not None:
            held = [value for value in values if value is not None]
            yield row(figure, held[0], basis=basis, bounds=span(held), counts=known)
    page = case.sizing.resolved.page_size
    if case.tokens % page:
        largest = msgspec.structs.replace(tokens, value=case.tokens & -case.tokens)
        yield row(largest, page, basis="launch", name="page_size")


def between(case: Case) -> Iterator[Plan]:
    """Plans from the least to the most memory; KV falls where one more state slot fits."""
    steps = STATE_STEPS if case.sizing.model.linear is not None else 1
    for step in range(steps + 1):
        share = step / steps
        pre = case.least.pre_load_gib * (1 - share) + case.most.pre_load_gib * share
        post = case.least.post_load_gib * (1 - share) + case.most.post_load_gib * share
        plan = case.sizing.in_memory(Memory(pre, post))
        if plan is not None:
            yield plan


def span(values: Sequence[Number]) -> tuple[Number, Number]:
    return min(values), max(values)


def slots_of(pool: StagePool) -> int | None:
    return pool.budget.state.slots if pool.budget.state is not None else None


def printed_budget(pool: StagePool) -> float | None:
    return pool.budget.num_bytes / GIB if pool.compressed is not None else None


# figures that the engine derives from its memory -> where a plan has them
FROM_MEMORY: dict[str, Callable[[StagePool], Number | None]] = {
    "max_mamba_cache_size": slots_of,
    "available_bytes_gib": printed_budget,
}


def failure_rows(case: Case) -> Iterator[Row]:
    """The fractions that a refusal names."""
    memory = case.planned.outcome.memory
    if memory.pre_load_gib <= 0 or not case.measured.complete:
        return
    for name, fraction in FRACTIONS.items():
        figure = case.log.get(name)
        if figure is not None:
            bounds = (fraction(case.most), fraction(case.least))
            yield row(figure, fraction(memory), basis="memory", bounds=bounds)


def weights_share(memory: Memory) -> float:
    return 1 - memory.post_load_gib / memory.pre_load_gib


FRACTIONS: dict[str, Callable[[Memory], float]] = {
    "minimum_mem_fraction": weights_share,
    "suggested_mem_fraction": smallest_fraction,
}


def stage_rows(case: Case, layout: Plan, stage: StagePlan) -> Iterator[Row]:
    """What follows from the tokens: bytes of the pools, the other pools' lengths, the limits."""
    number = stage.stage.pp_rank
    for figures, draft in (
        (target_figures(layout, stage), False),
        (draft_figures(layout, stage), True),
    ):
        for name, predicted in figures.items():
            found = of_stage(case.log, name, number, draft)
            if not found or name in FROM_MEMORY or (name in FROM_LAUNCH and number):
                continue
            if name in TOKENS and found[-1].value == case.tokens:
                continue
            yield stored_row(found, predicted, "launch" if name in FROM_LAUNCH else "tokens")
    yield from after_pool_row(case, layout, stage)


def stored_row(found: Sequence[Figure], predicted: Number, basis: str) -> Row:
    """The last figure of a kind, or the sum over the parts of a pool that the log prints one by one."""
    parts = [figure for figure in found if isinstance(figure.value, float)]
    if len(parts) < 2:
        return row(found[-1], predicted, basis=basis)
    spare = sum(part.rounding for part in parts[1:])
    whole = msgspec.structs.replace(parts[0], value=sum(float(part.value) for part in parts))
    return row(whole, predicted, basis=basis, bounds=(predicted - spare, predicted + spare))


def after_pool_row(case: Case, layout: Plan, stage: StagePlan) -> Iterator[Row]:
    """Free memory once the pools are made; workspaces come on top, so it decides nothing."""
    found = of_stage(case.log, "avail_after_pool_gib", stage.stage.pp_rank, False)
    unknown_state = case.sizing.model.linear is not None and not case.logged_slots
    if not found or case.measured.after is None or unknown_state:
        return
    taken = sum(tensor.num_bytes for tensor in stage_tensors(layout, stage)) / GIB
    left = case.measured.after.gib - taken
    bounds = (left - AFTER_POOL_GIB, left + AFTER_POOL_GIB)
    yield row(found[-1], left, basis="estimate", counts=False, bounds=bounds)


def of_stage(log: ServerLog, name: str, stage: int, draft: bool) -> list[Figure]:
    """A figure on the first rank of a pipeline stage that logged it: the last one, or each of a sparse pool's parts."""
    found = [each for each in log.all(name, draft=draft) if stage_of(each.rank) == stage]
    own = [each for each in found if each.rank == found[0].rank]
    labelled = {
        each.line
        for each in log.all("kv_label", draft=draft)
        if str(each.value).startswith(SPARSE_LABEL)
    }
    parts = [each for each in own if each.line in labelled]
    return parts or own[-1:]


def stage_of(rank: str) -> int:
    """`DP0 PP1 TP3` belongs to stage 1; a rank without PP to stage 0."""
    match = STAGE.search(rank)
    return int(match[1]) if match else 0
