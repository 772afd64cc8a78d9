"""Budget files: launches with what they must hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from kvplan import yamlfile
from kvplan.document import Document, FieldPath
from kvplan.errors import InputError
from kvplan.guard.plan_file import PlanFile
from kvplan.spec.server import Count, Fraction, Tokens

Gib = Annotated[float, Meta(ge=0, le=1 << 20)]
Mib = Annotated[float, Meta(ge=0, le=1 << 30)]
Rows = Annotated[int, Meta(ge=1, le=10**9)]
Percent = Annotated[str, Meta(pattern=r"^[0-9]{1,3}(\.[0-9]{1,3})? ?%$")]


class RequestsAt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """So many requests of `context` tokens each, at once, on one DP rank."""

    context: Tokens
    requests: Count


class Requirements(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a launch must hold. Tokens and requests are those of one DP rank, bytes those of the fullest card."""

    starts: bool = True
    fits_full_context: bool = False
    min_tokens: Tokens | None = None
    min_requests: RequestsAt | tuple[RequestsAt, ...] | None = None
    max_kv_gib: Gib | None = None
    min_headroom_gib: Gib | None = None
    max_row_width: Tokens | None = None
    max_req_to_token_mib: Mib | None = None
    max_host_gib: Gib | None = None
    no_retractions: bool = False
    no_rejections: bool = False
    max_occupancy: Fraction | None = None


class Traffic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A workload to replay over counts: the file, how it is read, and what it does not record.

    The scheduler's settings are those of the launch unless they are given here.
    """

    file: str
    format: str | None = None
    requests: Rows | None = None  # the first so many; None: all of them
    max_new: Rows | Literal["exact", "context"] = "exact"
    tpot_ms: Annotated[float, Meta(ge=0.000001, le=1e7)] = 20.0
    prefill_tokens_per_s: Rows = 20_000
    skip_bad_rows: bool = False
    block_size: Rows | None = None
    prefix_only: bool = False
    time_unit: Literal["s", "ms", "us", "ns"] | None = None
    request_rate: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    output_len: Annotated[int, Meta(ge=0, le=10**9)] | None = None
    seed: int | None = None
    schedule_policy: Literal["fcfs", "lpm"] | None = None
    schedule_conservativeness: Annotated[float, Meta(ge=0, le=1000)] | None = None
    enable_mixed_chunk: bool | None = None
    accept_len: Annotated[float, Meta(ge=1, le=4096)] | None = None  # tokens of a step with drafts
    radix_eviction_policy: Literal["lru", "lfu", "fifo", "filo", "mru", "slru"] | None = None


class Budget(PlanFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A launch, what it must hold, and how far its capacity may fall below the lock file's."""

    require: Requirements = Requirements()
    no_regress: Percent = "2%"
    workload: Traffic | str | None = None
    note: str | None = None


class BudgetFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Several budgets in one file, by name."""

    budgets: Annotated[dict[str, Budget], Meta(min_length=1)]


class Entry(msgspec.Struct, frozen=True):
    """One budget, and where in its document it stands."""

    name: str
    budget: Budget
    document: Document
    path: FieldPath

    @property
    def title(self) -> str:
        """The file, and the name in it where it holds several."""
        return f"{self.document.file}#{self.name}" if self.name else self.document.file

    def where(self, *path: str | int) -> str:
        """`file:line:column` of a field of the budget, of its parent where it is absent."""
        return self.document.where((*self.path, *path))


def read_budgets(path: Path) -> list[Entry]:
    """The budgets of one file; InputError where it is none."""
    document = yamlfile.load(path)
    if isinstance(document.data, dict) and "budgets" in document.data:
        file = document.convert(BudgetFile)
        entries = [
            Entry(name, budget, document, ("budgets", name))
            for name, budget in file.budgets.items()
        ]
    else:
        entries = [Entry("", document.convert(Budget), document, ())]
    for entry in entries:
        check_requirements(entry)
    return entries


def check_requirements(entry: Entry) -> None:
    """Refuse requirements that nothing could hold or that ask about what is not given."""
    require = entry.budget.require
    names = list(asked(require))
    replayed = [name for name in names if name in REPLAYED]
    if replayed and entry.budget.workload is None:
        raise InputError(
            f"'{replayed[0]}' needs a workload",
            where=entry.where("require", replayed[0]),
            hint="add 'workload: FILE', a trace or a made-up one",
        )
    if entry.budget.workload is not None and not replayed:
        raise InputError(
            "a workload is given and nothing is required of it",
            where=entry.where("workload"),
            hint="add 'no_retractions: true' to 'require'",
        )
    if not require.starts and names:
        raise InputError(
            f"a launch that must not start cannot hold '{names[0]}'",
            where=entry.where("require", names[0]),
            hint="remove it, or 'starts: false'",
        )


def asked(require: Requirements) -> dict[str, Any]:
    """What is required beside the start itself, by name."""
    values = {name: getattr(require, name) for name in require.__struct_fields__}
    del values["starts"]
    return {
        name: value for name, value in values.items() if value is not None and value is not False
    }


def tolerance(budget: Budget) -> float:
    """`no_regress` as a share: 0.02 for 2%."""
    return float(budget.no_regress.rstrip("%")) / 100


REPLAYED = ("no_retractions", "no_rejections", "max_occupancy")
