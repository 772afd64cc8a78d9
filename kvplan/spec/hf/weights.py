"""Weight bytes of a config: parameters by part, times the bits that its quantisation keeps."""

from __future__ import annotations

from typing import Literal, NamedTuple

from kvplan.spec.hf.config import Config
from kvplan.spec.hf.context import dtype_name
from kvplan.spec.hf.modality import Parts
from kvplan.spec.hf.parameters import Parameters, count_parameters
from kvplan.spec.hf.quantization import quantization, quantization_config
from kvplan.spec.model import ModelSpec, Weights

Scope = Literal["linear", "mlp", "experts"]  # what a method quantises: each contains the next
FORMULA_SPREAD = 0.03  # 95 % of the models with a known total lie within it


class Method(NamedTuple):
    """Bytes of one quantised parameter with its scales, and what is quantised."""

    num_bytes: float
    scope: Scope
    other: float = 2  # of linear parameters outside the scope
    bounds: tuple[float, float] | None = None  # where the bits themselves are a guess


METHODS = {
    "fp8": Method(1 + 4 / 128**2, "linear"),
    "modelopt_fp8": Method(1, "linear"),
    "mxfp8": Method(1 + 1 / 32, "linear"),
    "modelopt_fp4": Method(0.5 + 1 / 16, "mlp"),
    "modelopt_mixed": Method(0.5 + 1 / 16, "mlp", other=1),
    "mxfp4": Method(0.5 + 1 / 32, "experts"),
    "w4afp8": Method(0.5 + 1 / 32, "experts", other=1),
    "w8a8_int8": Method(1, "linear"),
    "w8a8_fp8": Method(1, "linear"),
    "awq": Method(0.5 + 2.5 / 128, "linear"),
    "gptq": Method(0.5 + 2.5 / 128, "linear"),
    "bitsandbytes": Method(0.5 + 1 / 16, "linear"),
    "auto-round": Method(0.5 + 2.5 / 128, "linear"),
}
PLAIN = Method(2, "linear")  # float32 checkpoints are served in half precision
UNKNOWN_METHOD = Method(1, "linear", bounds=(0.53, 2))


def estimate_weights(found: Parts, model: ModelSpec, bits: int | None = None) -> Weights:
    """Bytes by part, with the range that the formula and the quantisation leave open.

    `bits` of a parameter are for configs that leave their quantisation out.
    """
    params = count_parameters(found, model)
    section = quantization_config(found.top, found.text)
    method = method_of(section, found.text) if bits is None else method_of_bits(bits)
    kept = method or PLAIN
    total = part_bytes(params, kept)
    lowest, highest = kept.bounds or (kept.num_bytes, kept.num_bytes)
    narrow: Scope = "experts" if params.experts else "mlp"
    low = part_bytes(params, kept._replace(num_bytes=lowest, scope="linear"))
    high = part_bytes(params, kept._replace(num_bytes=highest, scope=narrow, other=2))
    attention = kept.num_bytes if kept.scope == "linear" else kept.other
    return Weights(
        num_params=params.total,
        total_bytes=total,
        low_bytes=int(low * (1 - FORMULA_SPREAD)),
        high_bytes=int(max(total, high) * (1 + FORMULA_SPREAD)),
        embedding_bytes=2 * params.embedding,
        head_bytes=2 * params.head,
        attention_bytes=int(params.attention * attention),
        replicated_bytes=int(params.replicated * attention),
        mtp_bytes=int(params.mtp * attention + params.mtp_experts * kept.num_bytes),
    )


def part_bytes(params: Parameters, method: Method) -> int:
    """All parts: ends and tower at two bytes, the others as the method keeps them."""
    each, other = method.num_bytes, method.other
    attention = each if method.scope == "linear" else other
    dense = other if method.scope == "experts" and params.experts else each
    return int(
        2 * (params.embedding + params.head + params.tower)
        + (params.attention + params.replicated + params.mtp) * attention
        + params.dense * dense
        + (params.experts + params.mtp_experts) * each
    )


def method_of_bits(bits: int) -> Method:
    """What a checkpoint of a width keeps: below 8 bits the experts alone, with their scales."""
    if bits >= 16:
        return PLAIN
    return Method(1, "linear") if bits >= 8 else Method(bits / 8 + 1 / 16, "experts")


def method_of(section: Config | None, text: Config) -> Method | None:
    """What the checkpoint's quantisation keeps of a parameter; None for a plain checkpoint."""
    name = quantization(section)
    if section is None or name is None:
        return None
    if text.text("expert_dtype") == "fp4":
        return Method(0.5 + 1 / 32, "experts", other=1)
    if name in ("compressed-tensors", "compressed_tensors"):
        return compressed_tensors(section)
    known = METHODS.get(name.removesuffix("_marlin"), UNKNOWN_METHOD)
    bits = section.whole("bits") or section.whole("w_bit")
    if bits and bits <= 16:
        return Method(bits / 8 + 2.5 / (section.whole("group_size") or 128), known.scope)
    return known


def compressed_tensors(section: Config) -> Method:
    """Bits and groups of the first group of layers; attention stays plain where it is ignored."""
    groups = section.inner("config_groups")
    if not groups or not groups.values:
        return UNKNOWN_METHOD
    first = groups.inner(next(iter(groups.values)))
    weights = first.inner("weights") if first else None
    bits = (weights.whole("num_bits") if weights else None) or 8
    group = (weights.whole("group_size") if weights else None) or 0
    ignored = " ".join(str(name) for name in section.items("ignore") or ())
    scope: Scope = "mlp" if "attn" in ignored else "linear"
    return Method(min(bits, 16) / 8 + (2 / group if group else 0), scope)


def served_share(found: Parts) -> float:
    """Served bytes of a stored byte: float32 checkpoints are halved."""
    stored = dtype_name(found.text) or dtype_name(found.top)
    section = quantization_config(found.top, found.text)
    return 0.5 if stored in ("float32", "float") and section is None else 1.0
