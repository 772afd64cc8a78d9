"""What the layout promises: packages listed, planning free of torch."""

from __future__ import annotations

import subprocess
import sys
import tomllib

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


PLANNING = ("spec", "sizing", "guard", "search", "report", "replay", "commands")
HEAVY = "{'torch', 'triton', 'numpy', 'pydantic', 'pandas'}"


def modules_of(package: str) -> list[str]:
    """Every module of a package, without those over real pools."""
    folder = ON_DISK.get(f"kvplan.{package}", REPOSITORY / "kvplan" / package)
    paths = [path.relative_to(folder).with_suffix("") for path in sorted(folder.rglob("*.py"))]
    return [
        ".".join(["kvplan", package, *path.parts]).removesuffix(".__init__")
        for path in paths
        if (package, path.parts[0]) != ("replay", "pools")
    ]


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
