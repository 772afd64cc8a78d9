"""Presets as plain rows: what each is in a few words, and its figures for JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from kvplan import catalog
from kvplan.catalog import Kind
from kvplan.spec.gpu import GpuSpec
from kvplan.spec.model import Mha, ModelSpec
from kvplan.spec.parallel import given

SCHEMA = "kvplan.presets/1"


def list_report(kinds: tuple[Kind, ...]) -> dict[str, Any]:
    """Every shipped preset of the kinds, in order of name."""
    rows = [row(kind, name) for kind in kinds for name in catalog.names(kind)]
    return {"schema": SCHEMA, "presets": rows}


def row(kind: Kind, name: str) -> dict[str, Any]:
    """One preset: kind, name, a summary in words, and for models the figures behind it."""
    spec = catalog.load_preset(kind, name, catalog.TYPES[kind])
    if isinstance(spec, ModelSpec):
        return {"kind": kind, "name": name, "summary": model_summary(spec), **model_figures(spec)}
    if isinstance(spec, GpuSpec):
        capability = f", sm {spec.sm}" if spec.sm else ""
        return {"kind": kind, "name": name, "summary": f"{spec.memory_mib:,} MiB{capability}"}
    return {"kind": kind, "name": name, "summary": spec.note or settings(spec)}


def settings(spec: msgspec.Struct) -> str:
    """The settings of a launch preset as words."""
    return " ".join(f"{name}={value}" for name, value in given(spec).items())


def model_figures(model: ModelSpec) -> dict[str, Any]:
    """What a list of models is sorted and searched by."""
    weights = model.weights
    return {
        "architecture": model.architecture,
        "hf_id": model.hf_id,
        "confidence": model.confidence,
        "context_length": model.context_length,
        "num_params": weights.num_params if weights else None,
        "weight_bytes": weights.total_bytes if weights else None,
        "weights_estimated": weights.estimated if weights else None,
    }


def model_summary(model: ModelSpec) -> str:
    """Layers and what they keep, e.g. `28 layers · GQA 8 × 128`."""
    return " · ".join([f"{model.num_layers} layers", cache_words(model), *beside_words(model)])


def cache_words(model: ModelSpec) -> str:
    """The main cache in words."""
    attention = model.attention
    if model.compressed is not None:
        return f"compressed, window {model.compressed.window}"
    if not isinstance(attention, Mha):
        return f"MLA {attention.kv_lora_rank} + {attention.qk_rope_head_dim}"
    kind = "MHA" if attention.num_kv_heads == model.num_attention_heads else "GQA"
    dims = str(attention.head_dim)
    if attention.v_head_dim != attention.head_dim:
        dims = f"{attention.head_dim}/{attention.v_head_dim}"
    return f"{kind} {attention.num_kv_heads} × {dims}"


def beside_words(model: ModelSpec) -> list[str]:
    """What a model keeps beside its main cache."""
    words = []
    if model.sliding is not None:
        words.append(f"{len(model.sliding.layers)} sliding ({model.sliding.window})")
    if model.linear is not None:
        kind = model.linear.state.__struct_config__.tag
        words.append(f"{len(model.linear.layers)} linear ({kind})")
    if model.indexer is not None:
        words.append("index keys")
    if model.sparse is not None:
        words.append(f"{len(model.sparse.sparse_layers)} sparse")
    if model.mtp_layers:
        words.append(f"{model.mtp_layers} MTP")
    if model.multimodal:
        words.append("multimodal")
    return words
