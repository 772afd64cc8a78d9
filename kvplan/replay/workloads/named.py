"""Workload files by path, or by the name of a shipped one."""

from __future__ import annotations

from pathlib import Path

from kvplan.catalog import PRESET_NAME, presets_root
from kvplan.errors import InputError, did_you_mean

FOLDER = "workloads"


def workload_names() -> list[str]:
    """Names of the shipped workloads."""
    return sorted(path.stem for path in (presets_root() / FOLDER).glob("*.yaml"))


def workload_path(name: str) -> Path:
    """The file that a user names: a path, or a shipped workload; InputError for neither."""
    if not name.strip():
        raise InputError("the workload has no name", hint="a trace file or a shipped name")
    path = Path(name)
    if path.suffix or "/" in name or exists(path):
        return path
    shipped = presets_root() / FOLDER / f"{name.lower()}.yaml"
    if PRESET_NAME.fullmatch(name.lower()) and len(name) <= 100 and shipped.is_file():
        return shipped
    raise InputError(
        f"no workload '{name}': neither a file nor a shipped one",
        hint=did_you_mean(name, workload_names()),
    )


def exists(path: Path) -> bool:
    """Whether there is such a file or folder; names that no file system takes are none."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
