"""The results that a sweep may show: one number or word of a plan each, computed only when asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kvplan.errors import InputError, did_you_mean
from kvplan.guard.figures import KINDS as FIGURES
from kvplan.guard.figures import Figures
from kvplan.search.kinds import Column, Kind, kind_of
from kvplan.sizing.capacity import capacity_at
from kvplan.sizing.plan import Plan
from kvplan.sizing.resolved import Resolved
from kvplan.spec.server import ServerArgs

DEFAULT_COLUMNS = ("tokens", "full_context_requests", "running_requests", "total_tokens", "gpus")
REQUESTS_AT = re.compile(r"requests_at_([1-9][0-9]{0,11})")
RESOLVED = "resolved_"
INTERNAL = frozenset({"pool_refusal", "gpu_sm", "swa_ratio_given", "mamba_overlap_asked"})


class Sized(msgspec.Struct, frozen=True):
    """A plan with the arguments that it was asked with, and its figures where a column needs them."""

    args: ServerArgs
    plan: Plan
    figures: Figures


class Result(msgspec.Struct, frozen=True):
    """A column of results: what it holds and how to get it."""

    column: Column
    value: Callable[[Sized], Any]
    needs_figures: bool = False


def total_tokens(sized: Sized) -> int:
    """Tokens of KV of the whole launch, each counted once."""
    widths = sized.plan.resolved.widths
    return sized.plan.tokens * widths.attn_dcp * widths.dp_ranks


PLAIN: dict[str, tuple[Kind, str, Callable[[Sized], Any]]] = {
    "tokens": ("integer", "tokens", lambda sized: sized.plan.tokens),
    "total_tokens": ("integer", "tokens", total_tokens),
    "tokens_per_gpu": (
        "number",
        "tokens",
        lambda sized: total_tokens(sized) / sized.plan.resolved.widths.gpus,
    ),
    "running_requests": ("integer", "requests", lambda sized: sized.plan.max_running_requests),
    "total_running_requests": (
        "integer",
        "requests",
        lambda sized: sized.plan.max_running_requests * sized.plan.resolved.widths.dp_ranks,
    ),
    "full_context_requests": (
        "integer",
        "requests",
        lambda sized: capacity_at(sized.plan, sized.plan.resolved.context_length).requests,
    ),
    "gpus": ("integer", "", lambda sized: sized.plan.resolved.widths.gpus),
    "row_width": ("integer", "positions", lambda sized: sized.plan.reserves.row_width),
}
FRACTIONAL = frozenset({"token_bytes"})  # two-pool and compressed models have no whole cell
# a sweep has `max_running_requests` as an input
BOOKED = {name: kind for name, kind in FIGURES.items() if name != "max_running_requests"}
SETTLED: dict[str, Kind] = {
    RESOLVED + field.name: kind
    for field in msgspec.structs.fields(Resolved)
    if (kind := kind_of(field.type)) is not None and field.name not in INTERNAL
}


def find_result(name: str) -> Result | None:
    """The result of a column name; None for one that no plan has."""
    if name in PLAIN:
        kind, unit, value = PLAIN[name]
        return Result(Column(name, kind, unit), value)
    if name in BOOKED:
        kind = "number" if name in FRACTIONAL else "integer"
        column = Column(name, kind, BOOKED[name].unit)
        return Result(column, lambda sized: sized.figures.get(name), needs_figures=True)
    if name in SETTLED:
        field = name.removeprefix(RESOLVED)
        column = Column(name, SETTLED[name])
        return Result(column, lambda sized: getattr(sized.plan.resolved, field))
    if at := REQUESTS_AT.fullmatch(name):
        context = int(at[1])
        column = Column(name, "integer", "requests")
        return Result(column, lambda sized: capacity_at(sized.plan, context).requests)
    return None


def column_of(name: str, inputs: Mapping[str, Kind]) -> Column:
    """The column of a name, an input or a result; InputError for one that is neither."""
    if name in inputs:
        return Column(name, inputs[name])
    found = find_result(name)
    if found is None:
        known = [*inputs, *PLAIN, *BOOKED, "requests_at_N", *SETTLED]
        raise InputError(f"unknown column '{name}'", hint=did_you_mean(name, known))
    return found.column
