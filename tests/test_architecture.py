"""What the layout promises: packages listed, imports that point one way, planning free of torch."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import REPOSITORY

ON_DISK = {
    "kvplan": REPOSITORY / "kvplan",
    "kvplan.commands": REPOSITORY / "commands",
    "kvplan.presets": REPOSITORY / "presets",
}


def test_every_package_on_disk_is_in_the_distribution():
    listed = set(
        tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    )

    found = {
        ".".join([name, *path.parent.relative_to(folder).parts])
        for name, folder in ON_DISK.items()
        for path in folder.rglob("__init__.py")
    }

    assert listed == found


PLANNING = ("spec", "sizing", "state", "guard", "search", "report", "replay", "commands")
HEAVY = "{'torch', 'triton', 'numpy', 'pydantic', 'pandas'}"


def modules_of(package: str) -> list[str]:
    """Every module of a package, without those over real pools."""
    folder = ON_DISK.get(f"kvplan.{package}", REPOSITORY / "kvplan" / package)
    names = [
        module_name(f"kvplan.{package}", folder, path) for path in sorted(folder.rglob("*.py"))
    ]
    return [name for name in names if layer_of(name) != "replay.pools"]


def module_name(package: str, folder: Path, path: Path) -> str:
    """The dotted name of a file below a package's folder."""
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join([package, *parts]).removesuffix(".__init__")


def test_planning_loads_nothing_heavy():
    """Every module of planning, since an import within one of them is what would be heavy."""
    names = ["kvplan.planner", *(name for package in PLANNING for name in modules_of(package))]
    code = (
        "import importlib, sys\n"
        f"for name in {names!r}:\n"
        "    importlib.import_module(name)\n"
        f"    assert not {HEAVY} & set(sys.modules), name\n"
    )

    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False
    )

    assert len(names) > 250
    assert done.returncode == 0, done.stderr


# packages and modules of the root, the lowest first; each imports its own line and those above it
LAYERS = (
    "errors",
    "units words id_runs scalars extras differences schemas",
    "document refusals",
    "jsonfile",
    "yamlfile",
    "spec",
    "sizing",
    "catalog shipped presets presets_import overrides",
    "planner",
    "wider",
    "state",
    "kernels",
    "allocators",
    "pools",
    "replay",
    "replay.pools",
    "guard",
    "search",
    "report",
    "conformance conformance_allocators conformance_tensors selftest",
    "commands",
    "__main__",
)
LEVELS = {name: level for level, line in enumerate(LAYERS) for name in line.split()}


def layer_of(module: str) -> str:
    """The name in LAYERS of a module of kvplan; empty for the root package itself."""
    parts = module.split(".")[1:]
    return ".".join(parts[:2]) if parts[:2] == ["replay", "pools"] else "".join(parts[:1])


def imported(path: Path) -> Iterator[str]:
    """Modules of kvplan that a file imports, also within functions and for types alone."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.startswith("kvplan."))
        elif isinstance(node, ast.ImportFrom) and node.module == "kvplan":
            yield from (f"kvplan.{each.name}" for each in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kvplan."):
            yield str(node.module)


def arrows() -> Iterator[tuple[Path, str, str]]:
    """Every file with its own layer and one that it imports."""
    for package, folder in ON_DISK.items():
        for path in folder.rglob("*.py"):
            own = layer_of(module_name(package, folder, path))
            yield from ((path, own, layer_of(each)) for each in imported(path) if own)


def test_imports_point_one_way():
    found = list(arrows())

    upward = [
        f"{path.relative_to(REPOSITORY)} imports {theirs}"
        for path, own, theirs in found
        if LEVELS[theirs] > LEVELS[own]
    ]
    assert len(found) > 1000
    assert not upward
