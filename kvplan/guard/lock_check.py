"""Whether a plan still holds what its lock file records, and which input moved it if it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kvplan.guard.budget import Entry, tolerance
from kvplan.guard.changes import Change, Comparison, Difference, compare, relative, value_of
from kvplan.guard.figures import KINDS, Figures
from kvplan.guard.record import Record
from kvplan.guard.requirements import Finding
from kvplan.words import argument, count, percent, short, signed

NAMED_INPUTS = 3
UPDATE = "restore it, or agree to the new plan with --update"


def lock_findings(entry: Entry, before: Record | None, now: Record, lock: Path) -> list[Finding]:
    """One finding a capacity that fell too far; one that holds where none did."""
    where = entry.where("no_regress")
    if before is None:
        text = f"not recorded in {lock.name}"
        return [finding(text, where, False, hint="record it with --update")]
    comparison = compare(before, now)
    allowed = tolerance(entry.budget)
    fallen = [each for each in losses(before, now) if relative(each) > allowed]
    if not fallen:
        return [finding(summary(comparison), where, True)]
    return [
        finding(
            f"{loss(each, allowed)}; {reason(comparison, each.name)}", where, False, hint=UPDATE
        )
        for each in fallen
    ]


def finding(text: str, where: str, held: bool, hint: str | None = None) -> Finding:
    return Finding(requirement="no_regress", held=held, text=text, where=where, hint=hint)


def losses(before: Record, now: Record) -> list[Difference]:
    """Capacities that fell, or are gone because the launch no longer starts."""
    names = [name for name, kind in KINDS.items() if kind.capacity and name in before.figures]
    pairs = [Difference(name, before.figures[name], now.figures.get(name, 0)) for name in names]
    return [pair for pair in pairs if pair.after < pair.before]


def loss(pair: Difference, allowed: float) -> str:
    """`tokens of KV: 418,177 recorded, 391,002 now (−6.5%, −2% allowed)`."""
    change = percent(pair.before, pair.after)
    counts = f"{count(pair.before)} recorded, {count(pair.after)} now"
    return f"{KINDS[pair.name].title}: {counts} ({change}, −{100 * allowed:g}% allowed)"


def summary(comparison: Comparison) -> str:
    """What became of the recorded plan, where it holds."""
    pairs = [pair for pair in comparison.figures if KINDS[pair.name].capacity]
    if not comparison.figures:
        return "as recorded"
    if not pairs:
        return "capacity as recorded"
    changed = ", ".join(
        f"{KINDS[pair.name].title} {percent(pair.before or 0, pair.after or 0)}" for pair in pairs
    )
    return f"within the lock: {changed}"


def reason(comparison: Comparison, figure: str) -> str:
    """Which inputs moved a figure, those with the largest effect first."""
    moved = [
        (moved_by(comparison.base, change, figure), change)
        for change in comparison.inputs
        if moved_by(comparison.base, change, figure) != 0
    ]
    moved.sort(key=lambda each: -abs(each[0]))
    parts = [
        f"{described(comparison, change)} (alone {signed(by)})"
        for by, change in moved[:NAMED_INPUTS]
    ]
    if len(moved) > NAMED_INPUTS:
        parts.append(f"{len(moved) - NAMED_INPUTS} more")
    if comparison.rules_changed or not comparison.inputs:
        parts.append(rules(comparison))
    elif not parts:
        named = [described(comparison, each) for each in comparison.inputs[:NAMED_INPUTS]]
        parts.append(f"{', '.join(named)} together")
    return f"moved by {', '.join(parts)}"


def moved_by(base: Figures, change: Change, figure: str) -> float:
    """How far a change alone moves a figure."""
    if change.alone is None:
        return 0
    return change.alone.get(figure, 0) - base.get(figure, 0)


def described(comparison: Comparison, change: Change) -> str:
    """`page_size 1 (engine default) → 64`, the first of several fields and how many more."""
    first = change.differences[0]
    sides = ((comparison.before, first.before), (comparison.after, first.after))
    before, after = (input_text(record, first.name, value) for record, value in sides)
    more = f" and {len(change.differences) - 1} more" if len(change.differences) > 1 else ""
    return f"{first.name} {before} → {after}{more}"


def input_text(record: Record, name: str, value: Any) -> str:
    """An input's value on one side, or what the engine chose where it is left open."""
    settled = record.settled(name)
    if settled is None:
        return short(value)
    return argument(value, settled.value, settled.origin)


def rules(comparison: Comparison) -> str:
    """kvplan's own rules moved the plan: the resolved values that differ, with their origins."""
    versions = f"kvplan {comparison.before.version} → {comparison.after.version}"
    values = [
        f"{pair.name} {short(value_of(pair.before))} → {short(value_of(pair.after))}"
        f" ({pair.after.origin if pair.after else 'gone'})"
        for pair in comparison.resolved[:NAMED_INPUTS]
    ]
    return ": ".join([versions, ", ".join(values)]) if values else versions
