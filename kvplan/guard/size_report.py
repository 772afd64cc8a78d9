"""The figures of a report that `kvplan size --json` wrote."""

from __future__ import annotations

from typing import Any

import msgspec

from kvplan.document import Document
from kvplan.errors import InputError
from kvplan.guard.figures import Figures, card_bytes, in_order
from kvplan.guard.record import Record, resolved_values

NO_START = "does not start: "


class Verdict(msgspec.Struct, frozen=True):
    """Whether the launch starts."""

    starts: bool
    text: str


class Use(msgspec.Struct, frozen=True):
    """One use of the card."""

    name: str
    bytes: int


class Books(msgspec.Struct, frozen=True):
    """Uses of the fullest card."""

    entries: tuple[Use, ...]


class Fits(msgspec.Struct, frozen=True):
    """Requests of one context length."""

    requests: int


class Pool(msgspec.Struct, frozen=True):
    """Sizes by the engine's own names."""

    budget_bytes: int
    cell_size: int | float
    max_total_num_tokens: int
    max_running_requests: int
    req_to_token_row_width: int
    swa_max_total_num_tokens: int | None = None
    max_mamba_cache_size: int | None = None


class HostPool(msgspec.Struct, frozen=True):
    """One pool of the host tier."""

    size: int


class SizeReport(msgspec.Struct, frozen=True):
    """What of the report a comparison reads; a launch that does not start has no pools."""

    verdict: Verdict
    resolved: dict[str, dict[str, Any]]
    pool: Pool | None = None
    ledger: Books = Books(())
    capacity: tuple[Fits, ...] = ()
    host: tuple[HostPool, ...] = ()


def reported(name: str, document: Document) -> Record:
    """The recorded outcome; the launch behind it is not known."""
    report = document.convert(SizeReport)
    try:
        resolved = resolved_values(report.resolved)
    except msgspec.ValidationError:
        raise InputError("the resolved arguments lack their origins", where=document.file) from None
    if report.pool is None:
        problem = report.verdict.text.removeprefix(NO_START)
        return Record(name, None, resolved, {}, "", problem)
    return Record(name, None, resolved, reported_figures(report, report.pool), "")


def reported_figures(report: SizeReport, pool: Pool) -> Figures:
    """The figures that the report knows; bytes of the host tier are not among them."""
    known = {
        "tokens": pool.max_total_num_tokens,
        "sliding_tokens": pool.swa_max_total_num_tokens,
        "state_slots": pool.max_mamba_cache_size,
        "max_running_requests": pool.max_running_requests,
        "full_context_requests": report.capacity[0].requests if report.capacity else None,
        "host_tokens": report.host[0].size if report.host else None,
        "budget_bytes": pool.budget_bytes,
        "token_bytes": pool.cell_size,
        "row_width": pool.req_to_token_row_width,
        **card_bytes((use.name, use.bytes) for use in report.ledger.entries),
    }
    return in_order(known)
