"""A plan as it is kept for later: its launch, what the engine made of it, its figures."""

from __future__ import annotations

from typing import Any

import msgspec

from kvplan import planner
from kvplan.guard.figures import Figures, figures
from kvplan.planner import Planned
from kvplan.sizing.plan import Plan
from kvplan.sizing.resolved_report import resolved_report

# arguments that are resolved under another name
RESOLVED = {
    "tp_size": "widths.tp",
    "pp_size": "widths.pp",
    "dcp_size": "widths.attn_dcp",
    "attn_cp_size": "widths.attn_cp",
    "speculative_num_steps": "speculation.num_steps",
    "speculative_eagle_topk": "speculation.eagle_topk",
    "speculative_num_draft_tokens": "speculation.num_draft_tokens",
    "hicache_ratio": "hicache.ratio",
    "mamba_radix_cache_strategy": "mamba_strategy",
}


class ResolvedValue(msgspec.Struct, frozen=True, rename={"origin": "from"}):
    """One argument after the engine's resolution, and the rule or person that set it."""

    origin: str
    value: Any = None


class Record(msgspec.Struct, frozen=True):
    """One plan. `launch` is None where only the outcome is known, `figures` empty where it does not start."""

    name: str
    launch: planner.Launch | None
    resolved: dict[str, ResolvedValue]
    figures: Figures
    version: str
    problem: str | None = None  # why it does not start
    warnings: tuple[str, ...] = ()  # what of a written launch is not in the plan

    @property
    def starts(self) -> bool:
        return bool(self.figures)

    def settled(self, argument: str) -> ResolvedValue | None:
        """What the engine made of a server argument, None where it is off or not known."""
        field, _, inner = RESOLVED.get(argument, argument).partition(".")
        found = self.resolved.get(field)
        if found is None or not inner:
            return found
        value = found.value.get(inner) if isinstance(found.value, dict) else None
        return None if value is None else msgspec.structs.replace(found, value=value)


def record(name: str, launch: planner.Launch, planned: Planned) -> Record:
    """A plan of this version."""
    outcome = planned.outcome
    resolved = resolved_values(resolved_report(outcome.resolved))
    if isinstance(outcome, Plan):
        return Record(name, launch, resolved, figures(outcome), version())
    return Record(name, launch, resolved, {}, version(), outcome.shortage.problem)


def resolved_values(report: dict[str, Any]) -> dict[str, ResolvedValue]:
    """The resolved arguments of a plan's report; what is off or open is left out."""
    values = msgspec.convert(pruned(report), dict[str, ResolvedValue])
    return {name: each for name, each in values.items() if each.value is not None}


def pruned(value: Any) -> Any:
    """Plain values without what is None, all the way down."""
    if isinstance(value, dict):
        return {name: pruned(each) for name, each in value.items() if each is not None}
    return [pruned(each) for each in value] if isinstance(value, list | tuple) else value


def version() -> str:
    """kvplan's own version."""
    from importlib.metadata import version as installed

    return installed("kvplan-pools")
