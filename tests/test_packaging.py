"""The wheel in a clean environment without torch, used from another folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kvplan.commands.app import COMMANDS
from tests.conftest import REPOSITORY

SOURCES = ("kvplan", "commands", "presets")
FILES = ("pyproject.toml", "README.md", "LICENSE")
PLACES = {"kvplan": "kvplan", "commands": "kvplan/commands", "presets": "kvplan/presets"}
HEAVY = "{'torch', 'triton', 'numpy', 'pandas', 'pydantic'}"
Call = Callable[..., subprocess.CompletedProcess[str]]


def run(*argv: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(each) for each in argv], cwd=cwd, capture_output=True, text=True, check=False
    )


def checked(*argv: str | Path, cwd: Path) -> str:
    done = run(*argv, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by way of the source distribution, from a copy that has no old build in it."""
    source = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / name, source / name, ignore=ignored)
    for name in FILES:
        shutil.copy(REPOSITORY / name, source)
    checked(sys.executable, "-P", "-m", "build", ".", cwd=source)
    (built,) = (source / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts of an environment with the wheel and what it asks for, nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    scripts = folder / "bin"
    pip = (sys.executable, "-m", "pip", "--python", scripts / "python")
    checked(*pip, "install", "--quiet", "--no-input", wheel, cwd=folder)
    return scripts


@pytest.fixture
def kvplan(installed: Path, tmp_path: Path) -> Call:
    """Run the installed command in an empty folder."""

    def call(*argv: str) -> subprocess.CompletedProcess[str]:
        return run(installed / "kvplan", *argv, cwd=tmp_path)

    return call


def test_the_wheel_carries_every_module_preset_and_data_file(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    carried = {each for each in names if ".dist-info/" not in each}

    expected = {
        f"{PLACES[name]}/{path.relative_to(REPOSITORY / name).as_posix()}"
        for name in SOURCES
        for path in (REPOSITORY / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert carried == expected
    assert any(each.endswith("presets/models/llama-3.1-8b.yaml") for each in carried)
    assert any(each.endswith(".dist-info/licenses/LICENSE") for each in names)


def test_the_base_install_is_light(installed: Path, tmp_path: Path):
    pip = (sys.executable, "-m", "pip", "--python", installed / "python")
    listed = checked(*pip, "list", "--format=freeze", cwd=tmp_path).lower().splitlines()
    names = {line.partition("==")[0] for line in listed}

    assert {"kvplan-pools", "typer", "rich", "pyyaml", "msgspec"} <= names
    assert not names & {"torch", "triton", "numpy", "pandas", "pydantic", "ray"}


def test_planning_works_without_torch(kvplan: Call):
    sized = kvplan("size", "llama-3.1-8b", "--gpu", "h100")
    listed = kvplan("presets", "list")
    looked = kvplan("inspect", "llama-3.1-8b", "--gpu", "h100", "--slot", "5")

    assert sized.returncode == listed.returncode == looked.returncode == 0
    assert sized.stdout.startswith("starts: 418,177 tokens of KV")
    assert all(name in listed.stdout for name in ("llama-3.1-8b", "h100", "deepseek-v3.2"))
    assert "kv.k" in looked.stdout
    assert not sized.stderr + listed.stderr + looked.stderr


def test_the_selftest_passes_without_torch(kvplan: Call):
    done = kvplan("selftest")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "records agree" in done.stdout.splitlines()[0]
    assert "pip install 'kvplan-pools[gpu]'" in done.stdout


def test_what_needs_torch_says_how_to_get_it(kvplan: Call):
    done = kvplan("inspect", "llama-3.1-8b", "--gpu", "h100", "--allocate")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --allocate needs torch, which is not installed\n")
    assert "  hint: pip install 'kvplan-pools[gpu]'\n" in done.stderr


def test_nothing_heavy_is_imported(installed: Path, tmp_path: Path):
    for argv in (["size", "llama-3.1-8b", "--gpu", "h100"], ["--help"], ["presets", "list"]):
        code = (
            "import sys; from kvplan.commands.app import main; main(sys.argv[1:]);"
            f"print(sorted({HEAVY} & set(sys.modules)))"
        )
        out = checked(installed / "python", "-P", "-c", code, *argv, cwd=tmp_path)
        assert out.splitlines()[-1] == "[]", argv


def test_every_command_is_there(installed: Path, tmp_path: Path):
    code = (
        "import sys; from kvplan.commands.app import main;"
        "print([name for name in sys.argv[1:] if main([name, '--help'])])"
    )
    out = checked(installed / "python", "-P", "-c", code, *COMMANDS, cwd=tmp_path)
    version = checked(installed / "python", "-P", "-m", "kvplan", "--version", cwd=tmp_path)

    assert out.splitlines()[-1] == "[]"
    assert version.startswith("kvplan ")
