"""The answers of a search as plain values, ready for JSON or a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvplan.guard.figures import figures
from kvplan.search.fit import Fit, Skipped, Trial
from kvplan.search.knobs import Knob
from kvplan.search.target import Target
from kvplan.sizing.capacity import capacity_at
from kvplan.sizing.plan import Plan

SCHEMA = "kvplan.fit/1"


def fit_report(
    answers: Sequence[Fit | Skipped],
    target: Target,
    now: Trial,
    *,
    assumed: Sequence[str] = (),
    warnings: Sequence[str] = (),
    ignored: Sequence[str] = (),
) -> dict[str, Any]:
    """The whole answer of `kvplan fit`; `now` is the launch as it stands."""
    fits = [answer for answer in answers if isinstance(answer, Fit)]
    return {
        "schema": SCHEMA,
        "verdict": {"found": any(fit.found for fit in fits), "text": verdict(fits, target)},
        "target": target.describe(),
        "now": {**trial_report(now, target), "value": None},
        "knobs": [knob_report(fit, target) for fit in fits],
        "skipped": [
            {"knob": answer.knob.name, "reason": answer.reason}
            for answer in answers
            if isinstance(answer, Skipped)
        ],
        "assumed": list(assumed),
        "warnings": list(warnings),
        "ignored": list(ignored),
    }


def verdict(fits: Sequence[Fit], target: Target) -> str:
    """The answer in one line: of one knob its value, of several how many reach the target."""
    if not fits:
        return "none of the knobs has a say in this launch"
    if len(fits) > 1:
        found = sum(fit.found is not None for fit in fits)
        return f"{found} of {len(fits)} knobs alone give {target.describe()}"
    fit = fits[0]
    if fit.found is None:
        return f"no --{fit.knob.name} gives {fit.target.describe()}: {fit.reason}"
    flags, wanted = fit.knob.flags(fit.found.value), fit.target.describe()
    if fit.goal == "best":
        return f"{flags} lets the pools fill together, for {wanted}"
    edge = ", coming from the roomy side," if fit.target.costly else ""
    return f"{flags} is the {fit.goal}{edge} that gives {wanted}"


def knob_report(fit: Fit, target: Target) -> dict[str, Any]:
    """One knob: its answer, the values beside it, and how many were sized for it."""
    found = fit.found
    return {
        "knob": fit.knob.name,
        "goal": fit.goal,
        "found": found is not None,
        "value": found.value if found else None,
        "flags": fit.knob.flags(found.value) if found else None,
        "proof": trial_report(found, target, fit.knob) if found else None,
        "reason": fit.reason,
        "neighbours": [trial_report(trial, target, fit.knob) for trial in fit.neighbours],
        "tried": fit.num_trials,
    }


def trial_report(trial: Trial, target: Target, knob: Knob | None = None) -> dict[str, Any]:
    """One value, and what the launch gets with it."""
    return {
        "value": trial.value,
        "shown": knob.shown(trial.value) if knob else "",
        "holds": trial.holds,
        "misses": trial.miss.text if trial.miss else None,
        **(plan_figures(trial.plan, target) if trial.plan else {}),
    }


def plan_figures(plan: Plan, target: Target) -> dict[str, Any]:
    """What is compared between values."""
    known, context = figures(plan), target.length(plan)
    return {
        "tokens": plan.tokens,
        "context_tokens": context,
        "requests": capacity_at(plan, context).requests,
        "max_running_requests": plan.max_running_requests,
        "headroom_bytes": known["headroom_bytes"],
        "host_tokens": known.get("host_tokens"),
        "gpus": plan.resolved.widths.gpus,
        "fills": target.fills(plan),
    }
