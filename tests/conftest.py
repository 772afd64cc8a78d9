"""Shared fixtures: the real command line in process, and where the golden records lie."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kvplan.commands.app import main

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED = REPOSITORY.parent / "shared"


@pytest.fixture
def kvplan(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Run one command line through the real entry point: (exit code, stdout, stderr)."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*argv: str) -> tuple[int, str, str]:
        code = main([str(arg) for arg in argv])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of golden records and facts beside the checkout; tests that need it are skipped without it."""
    if not SHARED.is_dir():
        pytest.skip("needs the shared/ folder beside the checkout")
    return SHARED
