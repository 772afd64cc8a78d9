"""What `kvplan diff` compares: plans named on the command line, in files, or recorded in a lock."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from kvplan import planner, yamlfile
from kvplan.document import Document, FieldPath
from kvplan.errors import InputError, did_you_mean
from kvplan.guard.budget import Budget, BudgetFile
from kvplan.guard.lock import MAX_BYTES, locked_plans
from kvplan.guard.plan_file import PlanFile, read_plan_file
from kvplan.guard.record import Record, record
from kvplan.guard.size_report import reported
from kvplan.jsonfile import parse_json
from kvplan.overrides import Override, parse_override
from kvplan.spec.server import ServerArgs, server_args
from kvplan.yamlfile import read_text

YAML_SUFFIXES = frozenset({".yaml", ".yml"})
LOG_SUFFIXES = frozenset({".log", ".out", ".txt"})
CHANGES = re.compile(r",(?=[A-Za-z_][\w.]*=)")
# fields by which a YAML file is known for a model or a plan; the engine's own configs have 'model'
CONFIG_FIELDS = frozenset({"architectures", "model_type"})
MODEL_FIELDS = frozenset({"architecture", "num_layers", "hidden_size"})
PLAN_FIELDS = frozenset({"gpu", "server", "require", "launch", "launch_file"})


class Named(msgspec.Struct, frozen=True):
    """A source as it is written: `BASE[#NAME][@GPU][,KEY=VALUE]…`."""

    text: str
    base: str
    name: str | None = None
    gpu: str | None = None
    overrides: tuple[Override, ...] = ()


class Common(msgspec.Struct, frozen=True):
    """What stands for a side that does not say it itself."""

    model: str | None = None
    gpu: str | None = None


class Plans(msgspec.Struct, frozen=True):
    """Every plan of a file that holds several, by name."""

    file: str
    records: dict[str, Record]

    def only(self) -> Record:
        """The one plan; InputError where there are more."""
        if len(self.records) != 1:
            raise InputError(
                f"{len(self.records)} plans are in this file, the other side is one",
                where=self.file,
                hint=f"choose one: {self.file}#{next(iter(self.records), 'NAME')}",
            )
        name, record = next(iter(self.records.items()))
        return msgspec.structs.replace(record, name=f"{self.file}#{name}")


def read_source(text: str, common: Common) -> Record | Plans:
    """One side: a plan, or every plan of a lock or budget file."""
    named = parse_source(text)
    path = Path(named.base)
    if not is_file(path):
        return planned(named, PlanFile(model=named.base), common)
    if path.suffix == ".json":
        return json_source(named, path, common)
    if path.suffix in YAML_SUFFIXES:
        return yaml_source(named, path, common)
    if path.suffix in LOG_SUFFIXES:
        return log_source(named, path, common)
    return planned(named, launch_file(named), common)


def parse_source(text: str) -> Named:
    """Take a source apart; a file of that very name is meant as it stands."""
    if is_file(Path(text)):
        return Named(text, text)
    first, *changes = CHANGES.split(text)
    base, at, gpu = first.rpartition("@")
    if not at:
        base, gpu = first, ""
    if at and not gpu:
        raise InputError("no GPU stands behind '@'", where=text, hint="write MODEL@GPU")
    name: str | None = None
    if not is_file(Path(base)) and "#" in base:
        base, _, name = base.rpartition("#")
    overrides = tuple(parse_override(change) for change in changes)
    return Named(text, base, name, gpu or None, overrides)


def is_file(path: Path) -> bool:
    """Whether the path is a file; names that no file system takes are not."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def json_source(named: Named, path: Path, common: Common) -> Record | Plans:
    """A lock file, a report of `kvplan size --json`, a config.json, or what YAML says as JSON."""
    document = parse_json(read_text(path, MAX_BYTES), str(path))
    schema = document.data.get("schema") if isinstance(document.data, dict) else None
    if isinstance(schema, str) and schema.startswith("kvplan.lock/"):
        return chosen(named, locked_plans(document))
    if isinstance(schema, str) and schema.startswith("kvplan.size/"):
        return reported(named.text, document)
    if isinstance(document.data, dict) and not CONFIG_FIELDS & document.data.keys():
        return yaml_source(named, path, common)
    return planned(named, PlanFile(model=named.base), common)


def yaml_source(named: Named, path: Path, common: Common) -> Record | Plans:
    """A plan or budget file, a model, engine settings, or a file that launches a server."""
    document = own_document(path)
    keys = set(document.data) if document and isinstance(document.data, dict) else set()
    if document is None or not keys:
        return planned(named, launch_file(named), common)
    if keys >= MODEL_FIELDS:
        return planned(named, PlanFile(model=named.base), common)
    if "budgets" in keys:
        return several(named, document, common)
    if keys <= set(ServerArgs.__struct_fields__):
        settings = PlanFile(server=document.convert(ServerArgs))
        return planned(named, settings, common, document)
    if keys & PLAN_FIELDS or keys <= set(Budget.__struct_fields__):
        return planned(named, document.convert(Budget), common, document)
    return planned(named, launch_file(named), common)


def own_document(path: Path) -> Document | None:
    """A YAML file as kvplan reads its own; None for files that hold what only others read."""
    try:
        return yamlfile.load(path)
    except InputError:
        return None


def several(named: Named, document: Document, common: Common) -> Record | Plans:
    """The budgets of one file, or the one that is named."""
    budgets = document.convert(BudgetFile).budgets
    wanted = [named.name] if named.name in budgets else list(budgets)
    plans = {
        name: planned(named, budgets[name], common, document, ("budgets", name)) for name in wanted
    }
    return chosen(named, plans)


def log_source(named: Named, path: Path, common: Common) -> Record:
    """The launch that a start-up log prints, with the memory that it measured."""
    from kvplan.guard.log_launch import log_launch, nearest_card
    from kvplan.guard.log_memory import measured_memory
    from kvplan.guard.server_log import read_log

    log = read_log(path)
    launch, measured = log_launch(log), measured_memory(log)
    card = nearest_card(measured.before.gib) if measured.before is not None else None
    file = PlanFile(
        model=launch.model,
        draft=launch.draft,
        server=server_args(launch.server, where=named.text),
        memory=measured.inputs(),
    )
    return planned(named, file, Common(common.model, common.gpu or card))


def launch_file(named: Named) -> PlanFile:
    """The plan of a file that launches a server."""
    return PlanFile(launch_file=named.base, launch_name=named.name)


def planned(
    named: Named,
    file: PlanFile,
    common: Common,
    document: Document | None = None,
    path: FieldPath = (),
) -> Record:
    """The record of a plan file, with what the command line says of it."""
    folder = None if document else Path()
    document = document or Document(None, named.text, lambda _path, _key: named.text)
    gpu = named.gpu or file.gpu or common.gpu
    if gpu is None:
        hint = f"write '{named.base}@GPU', or add --gpu"
        raise InputError("no GPU is named", where=named.text, hint=hint)
    file = msgspec.structs.replace(file, gpu=gpu, model=file.model or common.model)
    asked = read_plan_file(file, document, path, overrides=named.overrides, folder=folder)
    made = record(named.text, asked.launch, planner.plan(asked.launch))
    return msgspec.structs.replace(made, warnings=asked.warnings)


def chosen(named: Named, plans: dict[str, Record]) -> Record | Plans:
    """The plan that is named, or all of them."""
    if named.gpu or named.overrides:
        raise InputError("recorded plans cannot be changed", where=named.text)
    if named.name is None:
        return Plans(named.base, plans)
    if named.name not in plans:
        hint = did_you_mean(named.name, plans)
        raise InputError(f"no plan is named '{named.name}'", where=named.base, hint=hint)
    return msgspec.structs.replace(plans[named.name], name=named.text)
