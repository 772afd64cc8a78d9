"""The linear layers of a hybrid model: splitting layers by kind, and the state's dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from kvplan.spec.hf.config import Config
from kvplan.spec.state import LinearState, StateDtype, StateKind

LinearRule = Callable[[Config], LinearState | None]

STATE_DTYPES = frozenset({"float32", "bfloat16", "float16"})
FULL_NAMES = frozenset({"full_attention", "attention"})


def split(
    state: StateKind,
    kinds: tuple[str, ...],
    *,
    linear: Iterable[str],
    full: Iterable[str],
    dtype: StateDtype = "float32",
) -> LinearState | None:
    """Layers by kind; None where no layer is linear."""
    linear, full = set(linear), set(full)
    layers = tuple(index for index, kind in enumerate(kinds) if kind in linear)
    if not layers:
        return None
    return LinearState(
        layers=layers,
        full_attention_layers=tuple(index for index, kind in enumerate(kinds) if kind in full),
        state=state,
        ssm_dtype=dtype,
    )


def state_dtype(config: Config) -> StateDtype:
    """`mamba_ssm_dtype` where the engine reads it; names that it does not know are float32."""
    named = config.text("mamba_ssm_dtype")
    return cast("StateDtype", named) if named in STATE_DTYPES else "float32"
