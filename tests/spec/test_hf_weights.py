"""Estimated parameters and bytes against published totals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kvplan.spec.hf.read import Origin, model_from_config

# the copies in facts/ leave out keys that these totals need: towers, MTP counts, Mamba widths
TRIMMED_COPIES = {
    "falcon-h1-0.5b-instruct",
    "gemma-3-12b-it",
    "gemma-3-4b-it",
    "glm-4.7-flash",
}
# published totals that count a tied embedding twice, or scales as parameters
COUNTED_OTHERWISE = {
    "draft-gpt-oss-20b-eagle3",
    "gemma-4-26b-a4b",
    "gemma-4-31b",
    "gemma-4-e4b",
    "kimi-k2-thinking",
    "kimi-k2.5",
    "ministral-3-3b-2512",
    "qwen3-0.6b",
}


class Estimate(NamedTuple):
    num_params: int
    low: int
    total: int
    high: int


def estimate(config: dict[str, Any]) -> Estimate:
    weights = model_from_config(config, Origin(name="test")).weights
    assert weights is not None
    assert weights.estimated
    figures = (weights.num_params, weights.low_bytes, weights.total_bytes, weights.high_bytes)
    return Estimate(*(figure or 0 for figure in figures))


def facts(shared: Path) -> dict[str, dict[str, Any]]:
    return {
        path.stem: json.loads(path.read_text())
        for path in sorted((shared / "facts" / "models").glob("*.json"))
    }


def test_parameters_are_within_two_percent_of_the_published_totals(shared):
    off = {
        name: estimate(fact["config"]).num_params / fact["params_total"]
        for name, fact in facts(shared).items()
        if fact["params_total"]
    }
    wrong = {name for name, ratio in off.items() if abs(ratio - 1) > 0.021}

    assert len(off) > 90
    assert wrong <= TRIMMED_COPIES | COUNTED_OTHERWISE
    assert sum(abs(ratio - 1) < 0.001 for ratio in off.values()) > 60


def test_published_bytes_lie_in_the_estimated_range(shared):
    outside = set()
    for name, fact in facts(shared).items():
        published = fact["weight_bytes"] or {}
        found = estimate(fact["config"])
        if any(
            not found.low <= total * (0.5 if dtype == "fp32" else 1) <= found.high
            for dtype, total in published.items()
        ):
            outside.add(name)

    unquantised_copy = {"nemotron-3-super-120b-a12b-nvfp4"}
    assert outside <= TRIMMED_COPIES | COUNTED_OTHERWISE | unquantised_copy


QWEN = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_hidden_layers": 48,
    "num_experts": 128,
    "moe_intermediate_size": 768,
    "vocab_size": 151936,
    "torch_dtype": "bfloat16",
}
EXPERTS = 48 * 128 * 3 * 2048 * 768
ATTENTION = 48 * 2048 * (32 + 2 * 4 + 32) * 128
ENDS = 2 * 151936 * 2048


@pytest.mark.parametrize(
    ("section", "num_bytes"),
    [
        (None, 2 * (EXPERTS + ATTENTION + ENDS)),
        ({"quant_method": "fp8"}, EXPERTS + ATTENTION + 2 * ENDS),
        ({"quant_method": "mxfp4"}, EXPERTS * 17 / 32 + 2 * (ATTENTION + ENDS)),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4"},
            EXPERTS * 9 / 16 + 2 * (ATTENTION + ENDS),
        ),
        (
            {"quant_method": "awq", "bits": 4, "group_size": 128},
            (EXPERTS + ATTENTION) * (0.5 + 2.5 / 128) + 2 * ENDS,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32}}},
                "ignore": ["re:.*self_attn.*"],
            },
            EXPERTS * (0.5 + 2 / 32) + 2 * (ATTENTION + ENDS),
        ),
    ],
)
def test_quantisation_shrinks_what_it_covers(section, num_bytes):
    found = estimate({**QWEN, "quantization_config": section})

    assert found.total == pytest.approx(num_bytes, rel=0.002)
    assert found.low < found.total < found.high


def test_unknown_bits_leave_a_wide_range():
    section = {"quant_method": "compressed-tensors"}
    found = estimate({**QWEN, "quantization_config": section})

    assert found.low < 0.6 * found.total
    assert found.high > 1.8 * found.total
