"""JSON Schemas of every file kind, made from the types that read them."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kvplan.errors import InputError, did_you_mean

REFERENCE = "#/$defs/"
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
    "sweep": FileKind(("kvplan.search.sweep_spec:SweepSpec",), "a grid of launches"),
    "lock": FileKind(("kvplan.guard.lock:LockFile",), "recorded plans"),
}


def schema(kind: str) -> dict[str, Any]:
    """The JSON Schema of a file kind; InputError for an unknown one."""
    import msgspec

    if kind not in KINDS:
        raise InputError(f"no file kind is named '{kind}'", hint=did_you_mean(kind, KINDS))
    found = KINDS[kind]
    types = [loaded(each) for each in found.types]
    roots, parts = msgspec.json.schema_components(types, ref_template=REFERENCE + "{name}")
    root = roots[0] if len(roots) == 1 else {"anyOf": list(roots)}
    made: dict[str, Any] = {
        "$schema": DIALECT,
        "title": f"kvplan {kind}",
        "description": f"{found.title[0].upper()}{found.title[1:]}.",
        **root,
        "$defs": parts,
    }
    shortened: dict[str, Any] = renamed(made, short_names(parts))
    return shortened


def short_names(parts: Iterable[str]) -> dict[str, str]:
    """Numbered names for types that are named after their parameters: those are long and Python's own."""
    generic = [name for name in parts if "_" in name]
    return {name: f"{name.partition('_')[0]}{number}" for number, name in enumerate(generic, 1)}


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """A schema with its parts under other names, where they are defined and where they are used."""
    if isinstance(value, list):
        return [renamed(each, names) for each in value]
    if not isinstance(value, dict):
        return value
    made = {names.get(key, key): renamed(each, names) for key, each in value.items()}
    reference = made.get("$ref")
    if isinstance(reference, str):
        part = reference.removeprefix(REFERENCE)
        made["$ref"] = REFERENCE + names.get(part, part)
    if "[" in str(made.get("title")):
        del made["title"]
    return made


def loaded(place: str) -> Any:
    """The type at `module:name`."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
