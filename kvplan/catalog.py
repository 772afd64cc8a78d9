"""Presets by name or path: what a user may write for a model, a GPU, widths or speculation."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from kvplan.errors import InputError, did_you_mean, nearest
from kvplan.shipped import shipped
from kvplan.spec.gpu import GpuSpec
from kvplan.spec.model import ModelSpec
from kvplan.spec.parallel import ParallelSpec, parallel_arguments
from kvplan.spec.speculative import SpeculativeSpec, speculative_arguments

Kind = Literal["model", "gpu", "parallel", "speculative"]
Spec = TypeVar("Spec")

FOLDERS: dict[Kind, tuple[str, ...]] = {
    "model": ("models", "drafts"),
    "gpu": ("gpus",),
    "parallel": ("parallel",),
    "speculative": ("speculative",),
}
TYPES: dict[Kind, type[Any]] = {
    "model": ModelSpec,
    "gpu": GpuSpec,
    "parallel": ParallelSpec,
    "speculative": SpeculativeSpec,
}
YAML_SUFFIXES = frozenset({".yaml", ".yml"})
PRESET_NAME = re.compile(r"[a-z0-9][a-z0-9._+-]*")


def load_model(name: str) -> ModelSpec:
    """A model by preset name, own YAML, config.json (file or folder), or the HF id of a preset.

    A preset wins over a folder of the same name, which `./name` still reaches.
    """
    path = Path(name)
    if path.suffix in YAML_SUFFIXES or name.lower() in shipped().presets["model"]:
        return load_preset("model", name, ModelSpec)
    if path.suffix == ".json" or (name and is_folder(path)):
        return load_config(path)
    if "/" in name:
        return load_preset("model", preset_of_hf_id(name), ModelSpec)
    raise unknown("model", name)


def load_gpu(name: str) -> GpuSpec:
    """A GPU by preset name or own YAML."""
    return load_preset("gpu", name, GpuSpec)


def load_parallel(name: str) -> dict[str, Any]:
    """Server arguments of a parallel preset or own YAML."""
    return parallel_arguments(load_preset("parallel", name, ParallelSpec))


def load_speculative(name: str) -> dict[str, Any]:
    """Server arguments of a speculative preset or own YAML; `draft` names its draft model."""
    return speculative_arguments(load_preset("speculative", name, SpeculativeSpec))


def load_preset(kind: Kind, name: str, spec: type[Spec]) -> Spec:
    """A shipped preset by name, or a YAML file by path, checked against its type."""
    if Path(name).suffix in YAML_SUFFIXES:
        from kvplan.yamlfile import load

        return load(Path(name)).convert(spec)
    preset = shipped().presets[kind].get(name.lower())
    if preset is None:
        raise unknown(kind, name)
    return msgspec.json.decode(preset, type=spec)


def load_config(
    path: Path,
    *,
    name: str | None = None,
    hf_id: str | None = None,
    source: str | None = None,
    num_params: int | None = None,
    total_bytes: int | None = None,
    weight_bits: int | None = None,
) -> ModelSpec:
    """The model of a config.json, or of the folder that holds one and perhaps its weights."""
    from kvplan.presets_import import import_model
    from kvplan.spec.hf.read import Origin
    from kvplan.yamlfile import load_json

    folder = path if is_folder(path) else path.parent
    file = path / "config.json" if is_folder(path) else path
    if is_folder(path) and not file.is_file():
        raise InputError(
            "no config.json in this folder", where=str(path), hint="name the YAML file itself"
        )
    stem = folder.resolve().name if file.name == "config.json" else file.stem
    stem = printable(Path(stem))  # file names need not be text
    return import_model(
        load_json(file),
        Origin(name=name or stem or "model", hf_id=hf_id, source=source or printable(file)),
        num_params=num_params,
        total_bytes=total_bytes,
        weight_bits=weight_bits,
        folder=folder,
    )


def names(kind: Kind) -> list[str]:
    """Names of all shipped presets of a kind."""
    return sorted(shipped().presets[kind])


def preset_files(kind: Kind) -> Iterable[Path]:
    """Files of all shipped presets of a kind."""
    for folder in FOLDERS[kind]:
        yield from (presets_root() / folder).glob("*.yaml")


def preset_file(kind: Kind, name: str) -> Path | None:
    """File of a shipped preset, None where there is none of that name."""
    if not PRESET_NAME.fullmatch(name.lower()) or len(name) > 100:
        return None
    for folder in FOLDERS[kind]:
        file = presets_root() / folder / f"{name.lower()}.yaml"
        if file.is_file():
            return file
    return None


def find_model(hf_id: str) -> str | None:
    """Name of the preset whose figures an HF id has, in any case; None where no preset has."""
    wanted = hf_id.lower()
    return next((name for known, name in hf_ids().items() if known.lower() == wanted), None)


def preset_of_hf_id(hf_id: str) -> str:
    """Name of the preset that an HF id stands for, refused with the nearest id."""
    found = find_model(hf_id)
    if found is not None:
        return found
    close = nearest(hf_id, hf_ids())
    hint = f"did you mean '{close}'?" if close else "`kvplan presets list` shows the shipped ones"
    raise InputError(
        f"no shipped model has the HF id '{hf_id}', and no such path exists",
        hint=f"{hint}; or download its config.json and name that file",
    )


def hf_ids() -> dict[str, str]:
    """Preset name of every known HF id."""
    return shipped().hf_ids


def unknown(kind: Kind, name: str) -> InputError:
    """The refusal of a name that no preset has."""
    hint = did_you_mean(name, names(kind))
    if hint.startswith("one of") and kind == "model":
        hint = "`kvplan presets list` shows all; a YAML file, a config.json or its folder works too"
    return InputError(f"unknown {kind} '{name}'", hint=hint)


def printable(path: Path) -> str:
    """A path as text that can be written anywhere."""
    return str(path).encode("utf-8", "replace").decode("utf-8")


def is_folder(path: Path) -> bool:
    """Whether the path is a folder; names that no file system takes are not."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def presets_root() -> Path:
    """Folder of the shipped presets."""
    return Path(importlib.import_module("kvplan.presets").__path__[0])
