"""What the base install leaves out, asked for where it is needed."""

from __future__ import annotations

from importlib.util import find_spec

from kvplan.errors import MissingExtra

TORCH_HINT = "pip install 'kvplan-pools[gpu]'"


def require_torch(what: str) -> None:
    """MissingExtra where torch is not installed; it is looked for, not imported."""
    if find_spec("torch") is None:
        raise MissingExtra(f"{what} needs torch, which is not installed", hint=TORCH_HINT)
