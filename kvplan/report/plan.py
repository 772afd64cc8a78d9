"""A plan as plain values, ready for JSON or a table; the terminal sees the same mapping."""

from __future__ import annotations

from typing import Any

import msgspec

from kvplan.planner import Planned
from kvplan.report.host import backup_report, host_notes, host_report
from kvplan.report.origins import memory_origins, size_origins
from kvplan.sizing.capacity import Capacity, capacity_at
from kvplan.sizing.ledger import Ledger, ledger
from kvplan.sizing.limits import Limit, request_limits, token_limits
from kvplan.sizing.plan import NoStart, Plan, StagePlan
from kvplan.sizing.resolved_report import resolved_report
from kvplan.sizing.verdict import refusal, verdict
from kvplan.units import GIB

SCHEMA = "kvplan.size/1"
NEVER_MODELLED = ("LoRA adapters",)
OVERRUN_SHARE = 200  # an overrun below this part of the card is page rounding


def size_report(
    planned: Planned,
    *,
    contexts: tuple[int, ...] = (),
    all_ranks: bool = False,
    ignored: tuple[str, ...] = (),
    warnings: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The whole answer of `kvplan size`, whether the launch starts or not."""
    outcome = planned.outcome
    if isinstance(outcome, Plan):
        report = plan_report(outcome, contexts=contexts, all_ranks=all_ranks)
        if planned.missing_bytes:
            report |= overcommitted_report(outcome, planned.missing_bytes)
        assumed, of_host = host_notes(outcome)
        warnings += (*overrun_warnings(report["ledger"]), *of_host)
    else:
        assumed = ()
        report = refusal_report(planned, outcome)
    report["origins"] = [*memory_origins(planned), *report.get("origins", ())]
    report["warnings"] = [*outcome.resolved.warnings, *warnings]
    report["assumed"] = [*planned.estimate.assumed, *assumed]
    report["not_modelled"] = [*outcome.resolved.not_modelled, *NEVER_MODELLED]
    report["ignored"] = list(ignored)
    return report


def overrun_warnings(books: dict[str, Any]) -> tuple[str, ...]:
    """The engine allocates more than it budgeted: its graphs get less than it believes."""
    overrun, total = books["overrun_bytes"], books["total_bytes"]
    if overrun * OVERRUN_SHARE < total:
        return ()
    return (
        f"the engine budgets {overrun / GIB:.1f} GiB less than these pools take:"
        " lower --mem-fraction-static or cap --max-total-tokens",
    )


def plan_report(
    plan: Plan, *, contexts: tuple[int, ...] = (), all_ranks: bool = False
) -> dict[str, Any]:
    """Everything `kvplan size` knows of a launch that starts."""
    narrowest = min(plan.stages, key=lambda each: each.pool.profiled_tokens)
    capacities = [capacity_at(plan, plan.resolved.context_length)]
    capacities += [capacity_at(plan, tokens) for tokens in contexts]
    report = {
        **launch_report(plan),
        "verdict": {"starts": True, "text": verdict(plan, capacities[0])},
        "pool": pool_report(plan, narrowest),
        "limits": {
            "tokens": [limit_report(limit) for limit in token_limits(plan)],
            "requests": [limit_report(limit) for limit in request_limits(plan)],
        },
        "capacity": [capacity_report(each) for each in capacities],
        "per_request": {
            "bytes_per_token": narrowest.pool.cell.num_bytes,
            "fixed_bytes": fixed_request_bytes(narrowest),
        },
        "ledger": ledger_report(ledger(plan, narrowest)),
        "origins": size_origins(plan, narrowest),
        "host": host_report(plan, narrowest),
        "retraction_backup": backup_report(plan, narrowest),
    }
    if all_ranks:
        report["stages"] = [stage_report(plan, stage) for stage in plan.stages]
    return report


def overcommitted_report(plan: Plan, missing_bytes: int) -> dict[str, Any]:
    """A plan that the card cannot hold: the engine sizes it, and runs out of memory."""
    from kvplan.sizing.diagnosis import cures, last_resort

    found = cures(plan)
    text = verdict(plan, capacity_at(plan, plan.resolved.context_length), missing_bytes)
    return {
        "verdict": {"starts": False, "text": text},
        "cures": [msgspec.structs.asdict(cure) | {"text": cure.sentence()} for cure in found],
        "otherwise": None if found else last_resort(plan),
    }


def refusal_report(planned: Planned, refused: NoStart) -> dict[str, Any]:
    """A launch that does not start: what is short, and each flag's value that would start it."""
    from kvplan.sizing.diagnosis import cures

    found = cures(refused)
    shortage = refused.shortage
    return {
        **launch_report(refused),
        "verdict": {"starts": False, "text": refusal(refused)},
        "shortage": {
            "what": shortage.what,
            "stage": refused.pp_rank,
            "have_bytes": shortage.have_bytes,
            "need_bytes": shortage.need_bytes,
            "engine_suggests_mem_fraction_static": shortage.engine_fraction,
        },
        "cures": [msgspec.structs.asdict(cure) | {"text": cure.sentence()} for cure in found],
        "otherwise": None if found else otherwise(planned, refused),
    }


def otherwise(planned: Planned, refused: NoStart) -> str:
    """What to do where no single flag starts the launch: more ranks, if these would."""
    from kvplan.sizing.diagnosis import last_resort
    from kvplan.wider import wider

    width = None if refused.shortage.what == "host memory" else wider(planned.launch)
    if width is None:
        return last_resort(refused)
    return f"no memory setting starts this; more ranks do: {width}"


def launch_report(plan: Plan | NoStart) -> dict[str, Any]:
    """What was sized: model, card, memory, and every resolved argument with its origin."""
    memory = plan.memory
    return {
        "schema": SCHEMA,
        "model": {
            "name": plan.model.name,
            "architecture": plan.model.architecture,
            "source": plan.model.source,
            "confidence": plan.model.confidence,
        },
        "draft": plan.draft.name if plan.draft else None,
        "gpu": {"name": plan.gpu.name, "memory_mib": plan.gpu.memory_mib},
        "resolved": resolved_report(plan.resolved),
        "reserves": msgspec.structs.asdict(plan.reserves),
        "memory": {
            "pre_load_gib": memory.pre_load_gib,
            "post_load_gib": memory.post_load_gib,
        },
    }


def pool_report(plan: Plan, stage: StagePlan) -> dict[str, Any]:
    """The sizes that the engine logs, by its own names."""
    pool = stage.pool
    report: dict[str, Any] = {
        "budget_bytes": pool.budget.num_bytes,
        "cell_size": pool.cell.num_bytes,
        "cell_terms": [
            {"name": term.name, "bytes": term.num_bytes, "formula": term.formula}
            for term in pool.cell.terms
        ],
        "max_total_num_tokens": plan.tokens,
        "max_running_requests": plan.max_running_requests,
        "req_to_token_rows": plan.rows,
        "req_to_token_row_width": plan.reserves.row_width,
    }
    if pool.sliding is not None:
        report["full_max_total_num_tokens"] = pool.sliding.full_tokens
        report["swa_max_total_num_tokens"] = pool.sliding.sliding_tokens
        report["swa_mode"] = pool.sliding.mode
    if pool.compressed is not None:
        report["full_max_total_num_tokens"] = pool.compressed.full_tokens
        report["swa_max_total_num_tokens"] = pool.compressed.sliding_tokens
        report["c4_max_total_num_tokens"] = pool.compressed.c4_tokens
        report["c128_max_total_num_tokens"] = pool.compressed.c128_tokens
        report["c4_state_pool_size"] = pool.compressed.c4_state_slots
        report["c128_state_pool_size"] = pool.c128_state_slots
    if pool.unified is not None:
        report["unified_pool_bytes"] = pool.unified.total_bytes
        report["unified_full_capacity"] = pool.unified.full_capacity
        name = "swa" if pool.unified.slides else "state"
        report[f"unified_{name}_capacity"] = pool.unified.other_capacity
    if plan.resolved.kv_shards > 1:
        report["kv_shards"] = plan.resolved.kv_shards
        report["sharded_logical_tokens"] = plan.tokens * plan.resolved.kv_shards
    if plan.resolved.hisparse is not None and pool.compressed is None:
        report["hisparse_logical_tokens"] = plan.tokens * plan.resolved.logical_ratio
    if pool.budget.state is not None:
        state = pool.budget.state
        report["max_mamba_cache_size"] = state.slots
        report["state_slot_bytes"] = state.slot_bytes
        report["state_slots_per_request"] = state.slots_per_request
        report["state_slots_from"] = state.origin
    return report


def limit_report(limit: Limit) -> dict[str, Any]:
    report = msgspec.structs.asdict(limit)
    report["remedies"] = [msgspec.structs.asdict(remedy) for remedy in limit.remedies]
    return report


def capacity_report(capacity: Capacity) -> dict[str, Any]:
    return dict(msgspec.structs.asdict(capacity))


def ledger_report(books: Ledger) -> dict[str, Any]:
    return {
        "total_bytes": books.total_bytes,
        "entries": [
            {"name": entry.name, "bytes": entry.num_bytes, "note": entry.note}
            for entry in books.entries
        ],
        "overrun_bytes": books.overrun_bytes,
    }


def stage_report(plan: Plan, stage: StagePlan) -> dict[str, Any]:
    """One pipeline stage: its layers, and what it would hold alone."""
    span = stage.stage.span
    return {
        "pp_rank": stage.stage.pp_rank,
        "layers": [span.start, span.stop],
        "profiled_tokens": stage.pool.profiled_tokens,
        "budget_gib": round(stage.pool.budget.num_bytes / GIB, 3),
        "pool": pool_report(plan, stage),
        "ledger": ledger_report(ledger(plan, stage)),
    }


def fixed_request_bytes(stage: StagePlan) -> int:
    """What one running request takes whatever its length: state slots and snapshots."""
    state = stage.pool.budget.state
    if state is None:
        return 0
    return state.slot_bytes * (state.slots_per_request + state.draft_tokens)
