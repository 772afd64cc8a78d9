"""Models read from the recorded configs have the shapes that the engine reported."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvplan.sizing.drafts import draft_layers
from kvplan.sizing.shapes import (
    kv_heads_per_rank,
    stage_layers,
    stage_range,
    state_bytes_per_layer,
    state_shapes,
)
from kvplan.spec.hf.read import Origin, model_from_config
from kvplan.spec.model import Mha, ModelSpec

FAMILIES = ("explicit", "defaults", "special", "lowbit", "host")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_recorded_model_is_read_as_the_engine_reads_it(family, shared):
    differences = [
        f"{case['id']}: {field} is {got}, the engine says {wanted}"
        for case, answer in records(shared, family)
        for field, got, wanted in compared(case, answer)
        if got != wanted
    ]

    assert differences == []


def records(shared: Path, family: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    with (shared / "golden" / f"sizing-{family}.jsonl").open() as lines:
        for line in lines:
            record = json.loads(line)
            if "model" in record["answer"]:
                yield record["case"], record["answer"]


def compared(case: dict[str, Any], answer: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """(field, ours, recorded) of one record."""
    model = read(json.dumps(case["config"]))
    draft = read(json.dumps(case["draft_config"])) if case.get("draft_config") else None
    wanted, resolved, args = answer["model"], answer["resolved"], case["args"]
    ours = {
        **shapes(model, resolved),
        **layers(model, case),
        "mambaish": model.linear is not None,
        "draft_layers": drafts(model, draft, args.get("speculative_algorithm")),
        "mamba": state(model, resolved["attn_tp_size"], args.get("mamba_ssm_dtype")),
    }
    yield from ((field, got, wanted.get(field)) for field, got in ours.items())
    yield "context", args.get("context_length") or model.context_length, resolved["context_len"]
    stores_fp8 = model.compressed is not None or model.indexer is not None
    if args.get("kv_cache_dtype") in (None, "auto") and not stores_fp8:
        yield "dtype", model.dtype, resolved["kv_cache_dtype"]


@cache
def read(config: str) -> ModelSpec:
    return model_from_config(json.loads(config), Origin(name="recorded"))


def shapes(model: ModelSpec, resolved: dict[str, Any]) -> dict[str, Any]:
    attention = model.attention
    if not isinstance(attention, Mha):
        return {"attention_arch": "MLA"}
    if model.compressed is not None:
        return {"attention_arch": "MHA"}
    heads = kv_heads_per_rank(
        attention.num_kv_heads, resolved["attn_tp_size"], resolved["attn_dcp_size"]
    )
    return {
        "attention_arch": "MHA",
        "head_dim": attention.head_dim,
        "v_head_dim": attention.v_head_dim,
        "kv_heads_per_rank": heads,
    }


def layers(model: ModelSpec, case: dict[str, Any]) -> dict[str, Any]:
    stage = stage_range(model.num_layers, case.get("pp_rank", 0), case["args"].get("pp_size") or 1)
    by_kind = stage_layers(model, stage)
    two_pools = model.sliding or model.compressed
    return {
        "num_hidden_layers": model.num_layers,
        "layers": [stage.start, stage.stop],
        "is_hybrid_swa": two_pools is not None,
        "sliding_window": two_pools.window if two_pools else None,
        "full_layers": len(by_kind.full) if model.sliding else None,
        "swa_layers": len(by_kind.sliding) if model.sliding else None,
    }


def drafts(model: ModelSpec, draft: ModelSpec | None, algorithm: str | None) -> int | None:
    found = draft_layers(model, draft, algorithm)
    return found.total if found else None


def state(model: ModelSpec, attn_tp: int, ssm_dtype: str | None) -> dict[str, Any] | None:
    if model.linear is None:
        return None
    found = state_shapes(model.linear.state, attn_tp)
    per_layer = state_bytes_per_layer(model.linear, attn_tp, ssm_dtype)
    return {
        "cache_per_req": per_layer * len(model.linear.layers),
        "layers": len(model.linear.layers),
        "conv": [list(shape) for shape in found.conv],
        "temporal": list(found.temporal),
        "conv_dtype": f"torch.{model.linear.conv_dtype}",
        "temporal_dtype": f"torch.{ssm_dtype or model.linear.ssm_dtype}",
    }
