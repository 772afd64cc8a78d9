"""JSON Schemas of every file kind, made from the types that read them."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from kvplan.errors import InputError, did_you_mean

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class FileKind(NamedTuple):
    """A kind of file: the types that read it as `module:name`, and what it holds."""

    types: tuple[str, ...]
    title: str


KINDS: dict[str, FileKind] = {
    "model": FileKind(("kvplan.spec.model:ModelSpec",), "a model"),
    "gpu": FileKind(("kvplan.spec.gpu:GpuSpec",), "a GPU"),
    "parallel": FileKind(("kvplan.spec.parallel:ParallelSpec",), "widths of a launch"),
    "speculative": FileKind(
        ("kvplan.spec.speculative:SpeculativeSpec",), "speculative decoding of a launch"
    ),
    "plan": FileKind(("kvplan.guard.plan_file:PlanFile",), "a launch to plan"),
    "budget": FileKind(
        ("kvplan.guard.budget:Budget", "kvplan.guard.budget:BudgetFile"),
        "a launch with what it must hold, or several",
    ),
    "workload": FileKind(("kvplan.replay.workloads.synthetic:Synthetic",), "a made-up workload"),
    "lock": FileKind(("kvplan.guard.lock:LockFile",), "recorded plans"),
}


def schema(kind: str) -> dict[str, Any]:
    """The JSON Schema of a file kind; InputError for an unknown one."""
    import msgspec

    if kind not in KINDS:
        raise InputError(f"no file kind is named '{kind}'", hint=did_you_mean(kind, KINDS))
    found = KINDS[kind]
    roots, parts = msgspec.json.schema_components([loaded(each) for each in found.types])
    root = roots[0] if len(roots) == 1 else {"anyOf": list(roots)}
    return {
        "$schema": DIALECT,
        "title": f"kvplan {kind}",
        "description": f"{found.title[0].upper()}{found.title[1:]}.",
        **root,
        "$defs": parts,
    }


def loaded(place: str) -> Any:
    """The type at `module:name`."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
