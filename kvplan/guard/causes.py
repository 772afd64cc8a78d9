"""The table of known causes, and the likely one of each figure that differs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from kvplan.guard import cause_limits as limits
from kvplan.guard import cause_memory as memory
from kvplan.guard.cause_alternatives import layout_cause, memory_cause
from kvplan.guard.cause_case import Case, Explain
from kvplan.guard.log_rows import Cause, Row

TOKENS = frozenset({"max_total_num_tokens"})
SLOTS = frozenset({"max_mamba_cache_size"})
REQUESTS = frozenset({"max_running_requests"})
LEFT = frozenset({"avail_after_pool_gib"})
WEIGHTS = frozenset({"weights_gib"})
PAGE = frozenset({"page_size"})
LATENT = frozenset({"kv_gib"})
BUDGET = frozenset({"available_bytes_gib"})
CELL = frozenset({"bytes_per_full_token"})
RINGS = frozenset({"c128_state_fixed_gib", "c128_state"})
ANY: frozenset[str] = frozenset()
HOLDS_NOTHING_AGAINST = frozenset({"second_reading"})
OTHER_PROCESS_GIB = 3.0  # driver and context take less


class KnownCause(msgspec.Struct, frozen=True):
    """A name, the figures that it moves (none: any), and the sentence where it applies."""

    name: str
    figures: frozenset[str]
    explain: Explain


# tried in this order, after the alternatives have been
CERTAIN = (
    KnownCause("second_reading", TOKENS | SLOTS | BUDGET, memory.read_again),
    KnownCause("post_capture_sizing", TOKENS | SLOTS, memory.post_capture),
    KnownCause("draft_weights", TOKENS | SLOTS, memory.unknown_draft),
    KnownCause("other_version", TOKENS, memory.printed_cell),
    KnownCause("open_fraction", TOKENS | SLOTS, memory.open_fraction),
)
REMARKS = (KnownCause("request_rows", LEFT, limits.request_rows),)
LIKELY = (
    *REMARKS,
    KnownCause("lora", TOKENS | LEFT, memory.adapters),
    KnownCause("draft_weights", TOKENS, memory.draft_came_later),
    KnownCause("page_rounding", TOKENS, memory.page_rounding),
    KnownCause("state_ratio", TOKENS, memory.kv_share),
    KnownCause("undercounted", TOKENS, memory.undercounted),
    KnownCause("patched_build", TOKENS, memory.beyond_the_budget),
    KnownCause("other_process", TOKENS, memory.unbalanced),
    KnownCause("other_process", TOKENS, memory.memory_elsewhere),
    KnownCause("patched_build", SLOTS, memory.asked_slots),
    KnownCause("state_ratio", SLOTS, memory.state_ratio),
    KnownCause("capped_by_state", REQUESTS, limits.capped_by_state),
    KnownCause("page_size", PAGE, limits.page_size),
    KnownCause("dp_ranks", ANY, limits.shared_by_dp),
    KnownCause("other_default", ANY, limits.other_default),
    KnownCause("other_argument", ANY, limits.other_argument),
    KnownCause("index_keys_left_out", LATENT, limits.index_keys_left_out),
    KnownCause("other_version", CELL, limits.printed_cell),
    KnownCause("follows_requests", RINGS, limits.follows_requests),
    KnownCause("fp4_scales", ANY, limits.fp4_scales),
    KnownCause("checkpoint", WEIGHTS, limits.checkpoint),
    KnownCause("beside_the_pools", LEFT, limits.beside_the_pools),
)
ESTIMATED = Cause(
    "estimated_memory",
    "the log prints no free memory before and after loading: the plan estimates it",
)
UNKNOWN = Cause(
    "patched_build", "no known rule gives this: a patched build, or a version with another rule"
)


def explained(case: Case, rows: Iterable[Row]) -> tuple[Row, ...]:
    """The rows with the likely cause of each that differs."""
    rows = tuple(rows)
    stored = [row for row in rows if row.basis == "tokens"]
    of_layout = layout_cause(case, stored)
    for cause in list(of_layout.values())[:1]:
        of_layout |= {row: cause for row in rows if row.name in LEFT}
    return tuple(
        with_cause(row, first(REMARKS, case, row))
        if row.within
        else with_cause(row, of_layout.get(row) or likely_cause(case, row, stored))
        for row in rows
    )


def with_cause(row: Row, cause: Cause | None) -> Row:
    """The row with its cause or remark; some causes hold nothing against the plan."""
    excused = cause is not None and cause.name in HOLDS_NOTHING_AGAINST
    return msgspec.structs.replace(row, cause=cause, excused=excused)


def likely_cause(case: Case, row: Row, stored: Sequence[Row]) -> Cause:
    """What is certain, then another rule that gives the figure, then what is likely."""
    if row.name in TOKENS | SLOTS | BUDGET:
        if not case.measured.complete:
            return ESTIMATED
        other = first(CERTAIN, case, row) or memory_cause(case, row, stored)
        if other is not None:
            return other
    return first(LIKELY, case, row) or UNKNOWN


def first(causes: Iterable[KnownCause], case: Case, row: Row) -> Cause | None:
    """The first cause of a table that applies."""
    for cause in causes:
        if not cause.figures or row.name in cause.figures:
            text = cause.explain(case, row)
            if text is not None:
                return Cause(cause.name, text)
    return None


def failure_cause(case: Case, *, started: bool) -> Cause:
    """Why a server started that the plan refuses, or failed where the plan starts."""
    if started:
        if not case.measured.complete:
            return ESTIMATED
        if not case.gives("mem_fraction_static"):
            return Cause(
                "open_fraction", "the launch leaves the fraction open: add --mem-fraction-static"
            )
        return UNKNOWN
    out_of_memory = case.event("out_of_memory")
    if out_of_memory is not None:
        asked = case.log.value("tried_gib")
        much = f"{asked:.2f} GiB" if isinstance(asked, float) else "memory"
        return Cause(
            "out_of_memory",
            f"the pools fit, {much} beside them did not: lower --mem-fraction-static",
        )
    if case.event("host_memory") is not None:
        return Cause(
            "host_memory", "the host has too little memory for its pools: lower --hicache-size"
        )
    held = case.sizing.gpu.memory_mib / 1024 - case.planned.outcome.memory.pre_load_gib
    if case.measured.before is not None and held > OTHER_PROCESS_GIB:
        return Cause(
            "other_process", f"{held:.2f} GiB of the card were taken before the engine started"
        )
    if case.sizing.resolved.speculation.algorithm is None and case.log.get(
        "weights_gib", draft=True
    ):
        return Cause("draft_weights", "the log loads a draft that the launch does not name")
    return UNKNOWN
