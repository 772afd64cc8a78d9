"""A checkpoint's own quantisation: its name in the engine, and what it makes of the KV dtype `auto`."""

from __future__ import annotations

from typing import Literal

from kvplan.spec.hf.config import Config

FP4_ALGORITHMS = ("NVFP4", "FP4", "W4A16_NVFP4")


def quantization_config(top: Config, text: Config) -> Config | None:
    """The quantisation section, which multimodal checkpoints may keep in their text part."""
    for config in (top, text):
        for key in ("quantization_config", "compression_config"):
            if config.get(key):
                return config.inner(key)
    return None


def quantization(section: Config | None) -> str | None:
    """The engine's name of the method."""
    if section is None:
        return None
    method = (section.text("quant_method") or "").lower()
    algorithm = (section.text("quant_algo") or "").upper()
    if method not in ("", "modelopt") or not algorithm:
        return method or None
    if algorithm == "MIXED_PRECISION":
        return "modelopt_mixed"
    if any(name in algorithm for name in FP4_ALGORITHMS):
        return "modelopt_fp4"
    return {"FP8": "modelopt_fp8", "MXFP8": "mxfp8"}.get(algorithm, "modelopt")


def kv_cache_dtype(section: Config | None) -> Literal["fp8_e4m3"] | None:
    """fp8 where a ModelOpt checkpoint brings scales for its KV cache."""
    if section is None:
        return None
    named = section.get("kv_cache_quant_algo")
    if isinstance(named, str):
        return "fp8_e4m3" if named.upper() == "FP8" else None
    method = quantization(section) or ""
    scheme = section.get("kv_cache_scheme")
    if not isinstance(scheme, dict) or not method.startswith(("modelopt", "mxfp8")):
        return None
    eight_bit = scheme.get("type") == "float" and scheme.get("num_bits") == 8
    return "fp8_e4m3" if eight_bit else None
