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


def test_import_kvplan_loads_nothing_heavy():
    code = "import sys, kvplan; print(sorted({'torch', 'numpy', 'pydantic', 'pandas', 'typer'} & set(sys.modules)))"

    out = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    ).stdout

    assert out.strip() == "[]"
