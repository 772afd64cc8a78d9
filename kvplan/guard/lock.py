"""Capacity lock files: every plan with its inputs, as it was when it was last agreed on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from kvplan.document import Document
from kvplan.errors import InputError
from kvplan.guard.record import Record, ResolvedValue, pruned
from kvplan.jsonfile import parse_json
from kvplan.planner import Launch
from kvplan.sizing.memory import MemoryInputs
from kvplan.spec.gpu import GpuSpec
from kvplan.spec.model import ModelSpec
from kvplan.spec.server import ServerArgs
from kvplan.yamlfile import read_text

SCHEMA = "kvplan.lock/1"
ENGINE = "SGLang 0.5.23"
MAX_BYTES = 64 << 20
LINE = 100


class LockedLaunch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Inputs of a plan; `model`, `draft` and `gpu` name entries of the file's own tables."""

    model: str
    gpu: str
    draft: str | None = None
    server: dict[str, Any] = {}
    memory: dict[str, Any] = {}
    preset_fields: tuple[str, ...] = ()


class LockedPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One plan; its figures are empty where the launch does not start."""

    kvplan: str
    figures: dict[str, int | float]
    launch: LockedLaunch
    resolved: dict[str, ResolvedValue]
    problem: str | None = None


class LockFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file. Plans are named by their budget's path from the lock file, and its name there."""

    schema: Literal["kvplan.lock/1"]
    engine: str
    models: dict[str, dict[str, Any]]
    gpus: dict[str, dict[str, Any]]
    plans: dict[str, LockedPlan]


def read_lock(path: Path) -> dict[str, Record]:
    """The recorded plans by name; InputError where the file is no lock file."""
    return locked_plans(parse_json(read_text(path, MAX_BYTES), str(path)))


def locked_plans(document: Document) -> dict[str, Record]:
    """The plans of a lock file's document."""
    file = document.convert(LockFile)
    return {name: unlocked(name, plan, file, document) for name, plan in file.plans.items()}


def unlocked(name: str, plan: LockedPlan, file: LockFile, document: Document) -> Record:
    """A plan with its tables' entries put in; no launch where this version no longer reads it."""
    launch = plan.launch
    for key, table in (
        (launch.model, file.models),
        (launch.draft, file.models),
        (launch.gpu, file.gpus),
    ):
        if key is not None and key not in table:
            where = document.where(("plans", name, "launch"))
            raise InputError(f"{key!r} is in no table of this file", where=where)
    try:
        read: Launch | None = Launch(
            model=msgspec.convert(file.models[launch.model], ModelSpec),
            draft=msgspec.convert(file.models[launch.draft], ModelSpec) if launch.draft else None,
            gpu=msgspec.convert(file.gpus[launch.gpu], GpuSpec),
            args=msgspec.convert(launch.server, ServerArgs),
            memory=msgspec.convert(launch.memory, MemoryInputs),
            preset_fields=frozenset(launch.preset_fields),
        )
    except msgspec.ValidationError:
        read = None
    return Record(name, read, plan.resolved, plan.figures, plan.kvplan, plan.problem)


def updated(
    before: Mapping[str, Record], now: Mapping[str, Record], path: Path
) -> dict[str, Record]:
    """The recorded plans with those of now, less those whose budget file is gone.

    InputError where a plan that stays cannot be read by this version.
    """
    kept = {
        name: record
        for name, record in before.items()
        if name not in now and (path.parent / name.partition("#")[0]).is_file()
    }
    for name, record in kept.items():
        if record.launch is None:
            raise InputError(
                f"'{name}' was recorded by kvplan {record.version} in a form that is no longer read",
                where=str(path),
                hint="check its budget along with the others",
            )
    return kept | dict(now)


def lock_text(records: Mapping[str, Record]) -> str:
    """The file's text: sorted, one value a line, the same bytes for the same plans."""
    models: dict[str, Any] = {}
    gpus: dict[str, Any] = {}
    plans = {name: locked(records[name], models, gpus) for name in sorted(records)}
    file = {"schema": SCHEMA, "engine": ENGINE, "models": models, "gpus": gpus, "plans": plans}
    return laid_out(file) + "\n"


def locked(record: Record, models: dict[str, Any], gpus: dict[str, Any]) -> dict[str, Any]:
    """One plan as the file has it; its specs go into the tables."""
    launch = record.launch
    assert launch is not None, "only plans with their launch are locked"
    return {
        "kvplan": record.version,
        "figures": record.figures,
        **({"problem": record.problem} if record.problem else {}),
        "launch": {
            "model": tabled(models, launch.model.name, launch.model),
            **({"draft": tabled(models, launch.draft.name, launch.draft)} if launch.draft else {}),
            "gpu": tabled(gpus, launch.gpu.name, launch.gpu),
            "server": given(launch.args),
            "memory": given(launch.memory),
            "preset_fields": sorted(launch.preset_fields),
        },
        "resolved": msgspec.to_builtins(record.resolved),
    }


def tabled(table: dict[str, Any], name: str, spec: msgspec.Struct) -> str:
    """The key of a spec in its table; specs that share a name are numbered."""
    values, key, number = given(spec), name, 1
    while table.setdefault(key, values) != values:
        number += 1
        key = f"{name} ({number})"
    return key


def given(spec: Any) -> dict[str, Any]:
    """Fields that have a value, all the way down."""
    fields: dict[str, Any] = pruned(msgspec.to_builtins(spec))
    return fields


def laid_out(value: Any, indent: str = "") -> str:
    """JSON with every value on one line that fits on it, and keys in order of the mapping."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict) or (indent and len(indent) + len(line) <= LINE):
        return line
    inner = indent + "  "
    parts = [
        f"{inner}{json.dumps(key, ensure_ascii=False)}: {laid_out(each, inner)}"
        for key, each in value.items()
    ]
    return "{\n" + ",\n".join(parts) + f"\n{indent}}}" if parts else "{}"
