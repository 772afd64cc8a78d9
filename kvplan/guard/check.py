"""Budget files against their plans: what holds, what is broken, what cannot be read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from kvplan import planner
from kvplan.errors import InputError, KvplanError
from kvplan.guard.budget import Entry, read_budgets
from kvplan.guard.plan_file import Asked, located, read_plan_file
from kvplan.guard.requirements import Finding, findings
from kvplan.planner import Planned
from kvplan.sizing.plan import NoStart

BUDGET_SUFFIXES = frozenset({".yaml", ".yml"})
Status = Literal["holds", "broken", "bad"]


class Checked(msgspec.Struct, frozen=True):
    """One budget's outcome. A file that cannot be read is one, with its refusal."""

    title: str
    where: str
    findings: tuple[Finding, ...] = ()
    warnings: tuple[str, ...] = ()
    refusal: KvplanError | None = None
    entry: Entry | None = None
    launch: planner.Launch | None = None
    planned: Planned | None = None

    @property
    def status(self) -> Status:
        if self.refusal is not None:
            return "bad"
        return "holds" if all(finding.held for finding in self.findings) else "broken"

    @property
    def broken(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if not finding.held)


def check_files(paths: Iterable[Path]) -> list[Checked]:
    """Every budget of the files and folders, each file once: in their order, folders by name."""
    results: list[Checked] = []
    seen: set[Path] = set()
    for path in paths:
        files = yaml_files(path) if path.is_dir() else [path]
        if not files:
            error = InputError("no .yaml file is in this folder", where=str(path))
            results.append(Checked(str(path), str(path), refusal=error))
        for file in files:
            if file not in seen:
                seen.add(file)
                results += check_file(file)
    return results


def yaml_files(folder: Path) -> list[Path]:
    """YAML files below a folder by name, hidden ones and hidden folders aside."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix in BUDGET_SUFFIXES
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and path.is_file()
    )


def check_file(path: Path) -> list[Checked]:
    """The budgets of one file; its refusal where it is none."""
    try:
        entries = read_budgets(path)
    except KvplanError as error:
        return [Checked(str(path), error.where or str(path), refusal=error)]
    return [check_entry(entry) for entry in entries]


def check_entry(entry: Entry) -> Checked:
    """One budget: plan its launch and hold the requirements against it."""
    where = entry.where()
    try:
        asked = read_plan_file(entry.budget, entry.document, entry.path)
        planned = planner.plan(asked.launch)
        found = findings(entry, asked.launch, planned.outcome)
        found += traffic_findings(entry, asked, planned)
    except KvplanError as error:
        refusal = located(error, entry.budget, entry.document, entry.path)
        return Checked(entry.title, refusal.where or where, refusal=refusal, entry=entry)
    warnings = (
        *asked.warnings,
        *planned.outcome.resolved.warnings,
        *traffic_warnings(entry, asked, planned),
    )
    return Checked(
        entry.title,
        where,
        tuple(found),
        warnings,
        entry=entry,
        launch=asked.launch,
        planned=planned,
    )


def traffic_findings(entry: Entry, asked: Asked, planned: Planned) -> list[Finding]:
    """What the budget's workload does to the plan; the replay is imported only where there is one."""
    if entry.budget.workload is None or isinstance(planned.outcome, NoStart):
        return []
    from kvplan.guard.workload import replay_findings

    return replay_findings(entry, asked.scheduling, planned.outcome)


def traffic_warnings(entry: Entry, asked: Asked, planned: Planned) -> tuple[str, ...]:
    """What the replay of the budget's workload leaves out of its launch."""
    if entry.budget.workload is None or isinstance(planned.outcome, NoStart):
        return ()
    from kvplan.replay.settings import not_modelled

    return not_modelled(asked.scheduling)


def exit_code(results: Sequence[Checked]) -> int:
    """2 where anything could not be read, else 1 where a budget is broken, else 0."""
    statuses = {checked.status for checked in results}
    return 2 if "bad" in statuses else int("broken" in statuses)
