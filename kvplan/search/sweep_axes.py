"""The axes of a sweep file in their order, and everything that their names stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from kvplan import catalog
from kvplan.errors import InputError
from kvplan.guard.plan_file import beside
from kvplan.search.axis import Axis, make_axis
from kvplan.search.kinds import Kind, kind_of
from kvplan.search.sweep_plan import Presets
from kvplan.search.sweep_reader import Base, SweepReader
from kvplan.sizing.memory import MemoryInputs
from kvplan.spec.server import ServerArgs

T = TypeVar("T")

NAMED = ("model", "gpu", "parallel", "speculative", "draft")
FIELDS: dict[str, type[msgspec.Struct]] = {"server": ServerArgs, "memory": MemoryInputs}
VARIED = ("model", "draft", "gpu")


def axes_of(reader: SweepReader, base: Base) -> tuple[Axis, ...]:
    """Names, server arguments, memory, fields of models and cards: the last runs fastest."""
    return (*named_axes(reader, base), *field_axes(reader), *set_axes(reader))


def named_axes(reader: SweepReader, base: Base) -> Iterator[Axis]:
    """Model, card and presets."""
    for section in NAMED:
        given = getattr(reader.spec, section)
        if given is None:
            given = {"model": base.model, "draft": base.draft}.get(section)
        if given is None and section == "model":
            raise InputError(
                "no model is named",
                where=reader.document.where(),
                hint="add 'model: NAME', see 'kvplan presets list', or a launch",
            )
        yield make_axis(section, section, given, reader.document, (section,), str | None)


def field_axes(reader: SweepReader) -> Iterator[Axis]:
    """Server arguments and memory figures in the order of the file."""
    for section, kind in FIELDS.items():
        types = {field.name: field.type for field in msgspec.structs.fields(kind)}
        values = getattr(reader.spec, section)
        for name in reader.document.data.get(section, ()):
            given = getattr(values, name)
            yield make_axis(name, section, given, reader.document, (section, name), types[name])


def set_axes(reader: SweepReader) -> Iterator[Axis]:
    """Fields of the models and cards themselves."""
    for key, given in reader.spec.set.items():
        section, _, field = key.partition(".")
        if section not in VARIED or not all(field.split(".")):
            raise InputError(
                f"'{key}' is no field of a model, draft or gpu",
                where=reader.document.where(("set", key), key=True),
                hint="write e.g. model.num_layers; server arguments stand under 'server:'",
            )
        yield make_axis(key, f"set {section}", given, reader.document, ("set", key), Any)


def load_presets(reader: SweepReader, axes: Sequence[Axis]) -> Presets:
    """Everything that is named, by its name in the file. InputError with the line of the name."""
    by_name = {axis.name: axis for axis in axes}

    def load(section: str, loader: Callable[[str], T]) -> dict[str, T]:
        found: dict[str, T] = {}
        axis = by_name[section]
        for name, place in zip(axis.values, axis.places, strict=True):
            if name is not None:
                with reader.at(*place):
                    found[name] = loader(beside(reader.folder, name) or name)
        return found

    speculative = load("speculative", catalog.load_speculative)
    models = load("model", catalog.load_model) | load("draft", catalog.load_model)
    for preset in speculative.values():
        draft = preset.get("draft")
        if draft is not None and draft not in models:
            with reader.at("speculative"):
                models[draft] = catalog.load_model(draft)
    gpus = load("gpu", catalog.load_gpu)
    return Presets(models, gpus, load("parallel", catalog.load_parallel), speculative)


def scope_of(axes: Sequence[Axis], presets: Presets, base: Base) -> dict[str, Kind]:
    """Inputs that a condition or a column may name: the axes, and arguments that presets give."""
    scope: dict[str, Kind] = {axis.name: axis.kind for axis in axes if axis.cells == axis.values}
    fields = {field.name: kind_of(field.type) for field in msgspec.structs.fields(ServerArgs)}
    for source in (base.server, *presets.parallel.values(), *presets.speculative.values()):
        for name in source:
            kind = fields.get(name)
            if kind is not None:
                scope.setdefault(name, kind)
    return scope
