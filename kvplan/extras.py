"""What the base install leaves out, asked for where it is needed."""

from __future__ import annotations

from importlib.util import find_spec

from kvplan.errors import MissingExtra

TORCH_HINT = "pip install 'kvplan-pools[gpu]'"


def has_torch() -> bool:
    """Whether torch is installed; it is looked for, not imported."""
    return find_spec("torch") is not None


def require_torch(what: str, *, where: str | None = None) -> None:
    """MissingExtra where torch is not installed."""
    if not has_torch():
        raise MissingExtra(
            f"{what} needs torch, which is not installed", where=where, hint=TORCH_HINT
        )
