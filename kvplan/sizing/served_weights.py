"""What a launch's own dtype and quantisation make of a plain checkpoint's weights."""

from __future__ import annotations

import msgspec

from kvplan.spec.hf.weights import FORMULA_SPREAD, METHODS, PLAIN, UNKNOWN_METHOD, Method
from kvplan.spec.model import ModelSpec, Weights
from kvplan.spec.server import ServerArgs

FULL_PRECISION = ("float", "float32")
PARTS = ("embedding_bytes", "head_bytes", "attention_bytes", "replicated_bytes", "mtp_bytes")


def as_served(model: ModelSpec, args: ServerArgs) -> ModelSpec:
    """The model with the bytes that its weights take once they are loaded as the launch says.

    A checkpoint that is quantised itself keeps its bytes: the engine loads it as it is.
    """
    weights = model.weights
    if weights is None or weights.total_bytes is None or model.quantization is not None:
        return model
    if args.quantization is not None:
        name = args.quantization.removesuffix("_marlin")
        weights = quantised(weights, weights.total_bytes, METHODS.get(name, UNKNOWN_METHOD))
    elif args.dtype in FULL_PRECISION:
        weights = doubled(weights)
    return msgspec.structs.replace(model, weights=weights)


def doubled(weights: Weights) -> Weights:
    """Every part at four bytes a parameter instead of two."""
    whole = ("total_bytes", "low_bytes", "high_bytes", *PARTS)
    values = {name: getattr(weights, name) for name in whole}
    return msgspec.structs.replace(
        weights, **{name: 2 * value for name, value in values.items() if value}
    )


def quantised(weights: Weights, total: int, method: Method) -> Weights:
    """Linear layers as the method keeps them; which of them it leaves out is the range's high end."""
    lowest = (method.bounds or (method.num_bytes, 0))[0]
    return msgspec.structs.replace(
        weights,
        total_bytes=shrunk(weights, total, method.num_bytes),
        low_bytes=int(shrunk(weights, weights.low_bytes or total, lowest) * (1 - FORMULA_SPREAD)),
        high_bytes=int((weights.high_bytes or total) * (1 + FORMULA_SPREAD)),
        **{
            name: int(getattr(weights, name) * method.num_bytes / PLAIN.num_bytes)
            for name in ("attention_bytes", "replicated_bytes", "mtp_bytes")
        },
    )


def shrunk(weights: Weights, total: int, num_bytes: float) -> int:
    """A total whose embedding and head stay as they are, and the rest takes `num_bytes` a parameter."""
    ends = weights.embedding_bytes + weights.head_bytes
    return int(ends + max(0, total - ends) * num_bytes / PLAIN.num_bytes)
