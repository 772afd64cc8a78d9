"""Context length and dtype as the engine derives them."""

from __future__ import annotations

from typing import cast

from kvplan.spec.hf.config import Config
from kvplan.spec.model import ModelDtype

# in the engine's order of preference
CONTEXT_KEYS = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
)
DEFAULT_CONTEXT = 2048
# these already count the scaled length
PRESCALED = frozenset({"llama3", "yarn", "longrope"})
# classes that keep one set of rope parameters a layer kind, which never scales the context
NESTED_ROPE = frozenset({"gemma3_text", "gemma3n_text"})
DTYPES = {
    "half": "float16",
    "float16": "float16",
    "float": "float32",
    "float32": "float32",
    "bfloat16": "bfloat16",
}


def context_length(config: Config) -> int:
    """The longest sequence: the first length that the config names, scaled by a plain rope factor."""
    factor = rope_factor(config)
    for key in CONTEXT_KEYS:
        if config.has(key):
            return max(1, int(factor * config.count(key)))
    return DEFAULT_CONTEXT


def rope_factor(config: Config) -> float:
    """What a rope scaling multiplies the length by; 1 where the length is the scaled one."""
    name = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    rope = config.inner(name) if config.get(name) else None
    if rope is None or config.text("model_type") in NESTED_ROPE:
        return 1
    kind = rope.text("rope_type") or rope.text("type")
    if rope.has("original_max_position_embeddings") or kind in PRESCALED:
        return 1
    factor = rope.number("factor")
    if factor is not None and not 0 < factor < 1 << 20:
        raise rope.refuse("factor", f"must be above zero, got {factor}")
    return 1 if factor is None else factor


def dtype(config: Config, inherited: str | None = None) -> ModelDtype:
    """The dtype that the model is served in; float32 checkpoints are served in half precision."""
    named = dtype_name(config) or inherited
    found = DTYPES.get(named or "", "float32")
    if found != "float32":
        return cast("ModelDtype", found)
    gemma = (config.text("model_type") or "").startswith("gemma")
    return "bfloat16" if gemma else "float16"


def dtype_name(config: Config) -> str | None:
    """`dtype`, or `torch_dtype` as it used to be called."""
    name = config.text("dtype") or config.text("torch_dtype")
    return name.removeprefix("torch.") if name else None
