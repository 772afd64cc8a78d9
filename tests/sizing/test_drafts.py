"""How many draft layers a target gets, per algorithm."""

from __future__ import annotations

import json

import pytest

from kvplan.sizing.drafts import DraftLayers, draft_layers
from kvplan.spec.hf.read import Origin, model_from_config
from kvplan.spec.model import ModelSpec


def spec(**keys: object) -> ModelSpec:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 1024,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "num_hidden_layers": 12,
        "max_position_embeddings": 4096,
        "torch_dtype": "bfloat16",
        **keys,
    }
    return model_from_config(config, Origin(name="test"))


SLIDING = {
    "architectures": ["MiMoV2FlashForCausalLM"],
    "hybrid_layer_pattern": [0, 1, 1, 1] * 3,
    "sliding_window": 128,
}
TARGET = spec()


@pytest.mark.parametrize("algorithm", [None, "NGRAM", "UNO"])
def test_these_algorithms_add_no_draft_layers(algorithm):
    assert draft_layers(TARGET, spec(), algorithm) is None


@pytest.mark.parametrize(
    ("draft", "layers"),
    [
        (spec(num_hidden_layers=2), DraftLayers(2)),
        (spec(num_nextn_predict_layers=3), DraftLayers(3)),
        (spec(architectures=["Qwen3MoeForCausalLM"]), DraftLayers(1)),
        (spec(**SLIDING), DraftLayers(1, sliding=1)),
        (
            spec(architectures=["NanbeigeForCausalLM"], num_hidden_layers=4, num_loops=3),
            DraftLayers(12),
        ),
    ],
)
def test_a_draft_checkpoint_brings_its_mtp_layers_or_all_of_them(draft, layers):
    assert draft_layers(TARGET, draft, "EAGLE3") == layers


def test_a_draft_that_reads_the_target_s_kv_is_priced_all_the_same():
    assistant = spec(architectures=["Gemma4AssistantForCausalLM"], num_hidden_layers=4)

    assert draft_layers(TARGET, assistant, "FROZEN_KV_MTP") == DraftLayers(4)


def test_a_target_without_a_draft_uses_its_own_mtp_layers():
    step = spec(
        architectures=["Step3p5ForCausalLM"],
        num_nextn_predict_layers=3,
        layer_types=["full_attention", "sliding_attention"] * 6,
        sliding_window=512,
    )

    assert draft_layers(step, None, "EAGLE") == DraftLayers(3, sliding=6)
    assert draft_layers(TARGET, None, "EAGLE") is None
    assert draft_layers(spec(num_nextn_predict_layers=0), None, "NEXTN") is None


def test_banded_mtp_layers_keep_the_full_length():
    inkling = spec(
        architectures=["InklingForConditionalGeneration"],
        model_type="inkling_model",
        local_layer_ids=[1, 2],
        mtp_local_layer_ids=[0, 3],
    )

    assert draft_layers(inkling, None, "EAGLE") == DraftLayers(8, banded=2)


def test_block_drafts_bring_all_their_layers(shared):
    text = (shared / "facts" / "models" / "draft-qwen3-8b-dflash.json").read_text()
    draft = model_from_config(json.loads(text)["config"], Origin(name="draft"))

    assert draft_layers(TARGET, draft, "DFLASH") == DraftLayers(5)
    assert draft_layers(TARGET, None, "DFLASH") is None
    assert draft.block_size == 16
