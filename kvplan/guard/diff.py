"""Two plans side by side as a plain mapping: what changed, why, how much, the largest effect first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvplan.guard.changes import Change, Comparison, Difference, compare, differing, relative
from kvplan.guard.figures import KINDS, Figures, shown
from kvplan.guard.record import Record, ResolvedValue
from kvplan.words import count, percent, printable

SCHEMA = "kvplan.diff/1"


def diff_report(before: Record, after: Record) -> dict[str, Any]:
    """Everything `kvplan diff` knows of two plans."""
    comparison = compare(before, after)
    return {
        "schema": SCHEMA,
        "verdict": {"same": same(comparison), "text": verdict(comparison)},
        "before": side(before),
        "after": side(after),
        "inputs": [input_report(comparison, change) for change in comparison.inputs],
        "resolved": list(resolved_rows(comparison)),
        "figures": [figure_report(pair) for pair in comparison.figures],
        "rules_changed": comparison.rules_changed,
        "warnings": [
            f"{name}: {printable(warning)}"
            for name, each in (("A", before), ("B", after))
            for warning in each.warnings
        ],
    }


def fleet_report(before: Mapping[str, Record], after: Mapping[str, Record]) -> dict[str, Any]:
    """Two locks: every plan that was added, removed or moved, the largest move first."""
    reports = {
        name: diff_report(before[name], after[name])
        for name in sorted(before.keys() & after.keys())
    }
    moved = [
        {"name": name, **each} for name, each in reports.items() if not each["verdict"]["same"]
    ]
    moved.sort(key=lambda each: -largest(each["figures"]))
    added, removed = sorted(after.keys() - before.keys()), sorted(before.keys() - after.keys())
    parts = {"moved": len(moved), "added": len(added), "removed": len(removed)}
    text = ", ".join(f"{number} {what}" for what, number in parts.items() if number)
    return {
        "schema": SCHEMA,
        "verdict": {
            "same": not text,
            "text": f"{text or 'no plan moved'} of {len(before.keys() | after.keys())} plans",
        },
        "plans": moved,
        "added": added,
        "removed": removed,
    }


def largest(figures: list[dict[str, Any]]) -> float:
    """The tokens' relative change, or the largest of the others where they stay."""
    changes: dict[str, float] = {each["name"]: abs(each["share"]) for each in figures}
    return 1e6 * changes.get("tokens", 0.0) + max(changes.values(), default=0.0)


def same(comparison: Comparison) -> bool:
    return not (comparison.inputs or comparison.resolved or comparison.figures)


def verdict(comparison: Comparison) -> str:
    """What became of the tokens, in one line."""
    before, after = comparison.before, comparison.after
    if not after.starts:
        earlier = (
            "as before" if not before.starts else f"{count(before.figures['tokens'])} tokens before"
        )
        return f"does not start: {after.problem} ({earlier})"
    tokens = after.figures["tokens"]
    if not before.starts:
        return f"starts with {count(tokens)} tokens of KV; before it did not: {before.problem}"
    if tokens == before.figures["tokens"]:
        return f"{count(tokens)} tokens of KV in both; {first_move(comparison)}"
    change = percent(before.figures["tokens"], tokens)
    return f"{count(before.figures['tokens'])} → {count(tokens)} tokens of KV ({change})"


def first_move(comparison: Comparison) -> str:
    """The figure that moves most, where the tokens stay."""
    if not comparison.figures:
        return "no figure moves"
    most = comparison.figures[0]
    before, after = most.before or 0, most.after or 0
    return (
        f"{KINDS[most.name].title} {shown(most.name, before)} → {shown(most.name, after)}"
        f" ({percent(before, after)})"
    )


def side(record: Record) -> dict[str, Any]:
    return {
        "name": printable(record.name),
        "starts": record.starts,
        "problem": record.problem,
        "kvplan": record.version,
    }


def input_report(comparison: Comparison, change: Change) -> dict[str, Any]:
    """One change of the inputs, where each value came from, and what it does alone."""
    return {
        "name": change.name,
        "differences": [
            {
                **{"name": each.name, "before": each.before, "after": each.after},
                "before_resolved": resolved_as(comparison.before, each.name, each.before),
                "after_resolved": resolved_as(comparison.after, each.name, each.after),
            }
            for each in change.differences
        ],
        "alone": moves(comparison.base, change.alone),
        "problem": change.problem,
    }


def resolved_as(record: Record, name: str, value: Any) -> dict[str, Any] | None:
    """What the engine made of an argument that a side leaves open."""
    settled = record.settled(name) if value is None else None
    return None if settled is None else {"value": settled.value, "from": settled.origin}


def moves(base: Figures, changed: Figures | None) -> list[dict[str, Any]] | None:
    """The figures that a change alone moves; None where it is refused alone."""
    if changed is None:
        return None
    pairs = [Difference(name, base.get(name), changed.get(name)) for name in KINDS]
    return [figure_report(pair) for pair in pairs if pair.before != pair.after]


def figure_report(pair: Difference) -> dict[str, Any]:
    before, after = pair.before, pair.after
    sign = -1 if (after or 0) < (before or 0) else 1
    return {
        "name": pair.name,
        "title": KINDS[pair.name].title,
        "before": before,
        "after": after,
        "share": sign * relative(pair),
    }


def resolved_rows(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """Resolved values that differ, leaf by leaf, with the rule or person behind each."""
    for pair in comparison.resolved:
        before, after = pair.before or ABSENT, pair.after or ABSENT
        for leaf in differing(pair.name, before.value, after.value):
            yield {
                "name": leaf.name,
                "before": leaf.before,
                "after": leaf.after,
                "before_from": before.origin or None,
                "after_from": after.origin or None,
            }


ABSENT = ResolvedValue(origin="")
