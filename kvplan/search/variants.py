"""Models and cards with fields of their own changed, as `set:` of a sweep file asks for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from kvplan.document import Document
from kvplan.errors import InputError
from kvplan.overrides import Override, apply
from kvplan.search.axis import Axis
from kvplan.search.sweep_plan import Presets

Spec = TypeVar("Spec", bound=msgspec.Struct)
Changes = tuple[tuple[str, Any], ...]  # dotted field and value


def varied(spec: Spec, changes: Changes) -> Spec:
    """The spec with the changes; InputError where it cannot have one of them."""
    document = Document(msgspec.to_builtins(spec), "set", lambda *_: "set")
    overrides = [Override(field, value, f"{field}={value}") for field, value in changes]
    return apply(document, overrides).convert(type(spec))


def check_variants(document: Document, axes: Sequence[Axis], presets: Presets) -> None:
    """Refuse, with its line, a value that one of the models or cards cannot have by itself."""
    by_name = {axis.name: axis for axis in axes}
    for axis in axes:
        section, _, field = axis.name.partition(".")
        if axis.section != f"set {section}":
            continue
        for value, place in zip(axis.values, axis.places, strict=True):
            for spec in specs(section, by_name[section], presets):
                try:
                    varied(spec, ((field, value),))
                except InputError as error:
                    where = document.where(place)
                    raise InputError(
                        f"{spec.name}: {error.problem}", where=where, hint=error.hint
                    ) from None


def specs(section: str, axis: Axis, presets: Presets) -> Iterable[Any]:
    """The models or cards that a section names."""
    known: dict[str, Any] = presets.gpus if section == "gpu" else presets.models
    return [known[name] for name in axis.values if name is not None]
