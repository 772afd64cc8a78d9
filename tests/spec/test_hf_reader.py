"""Refusals, class defaults and encodings of the config.json reader."""

from __future__ import annotations

import json

import pytest

from kvplan.errors import InputError, UnknownArchitecture
from kvplan.spec.hf.architectures import ARCHITECTURES
from kvplan.spec.hf.read import Origin, model_from_config, read_model
from kvplan.spec.model import Indexer, Mha, Mla, Vision
from kvplan.yamlfile import load_json

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


def read(**keys: object):
    config = {key: value for key, value in {**LLAMA, **keys}.items() if value is not ...}
    return model_from_config(config, Origin(name="test"))


def test_unknown_classes_are_refused_with_the_list_and_a_way_out():
    with pytest.raises(UnknownArchitecture) as refusal:
        read(architectures=["LlamaaForCausalLM"])

    assert refusal.value.problem == "no rules for the model class 'LlamaaForCausalLM'"
    hint = refusal.value.hint or ""
    assert "did you mean 'LlamaForCausalLM'" in hint
    assert "YAML" in hint
    assert all(name in hint for name in ARCHITECTURES)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("hidden_size", "4096", "'hidden_size' must be an integer, got '4096'"),
        ("hidden_size", True, "'hidden_size' must be an integer, got True"),
        ("num_hidden_layers", 0, "'num_hidden_layers' must be above zero, got 0"),
        ("num_hidden_layers", 10**9, "'num_hidden_layers' must be at most 4096, got 1000000000"),
        ("num_key_value_heads", -1, "'num_key_value_heads' must be between 0 and"),
        ("architectures", [], "'architectures' is missing"),
        ("architectures", "LlamaForCausalLM", "'architectures' must be a list"),
        ("text_config", 7, "'text_config' must be a mapping, got 7"),
        ("rope_scaling", [1], "'rope_scaling' must be a mapping, got a list"),
        ("torch_dtype", 16, "'torch_dtype' must be text, got 16"),
    ],
)
def test_wrong_values_are_refused_by_name(key, value, problem):
    with pytest.raises(InputError) as refusal:
        read(**{key: value})

    assert refusal.value.problem.startswith(problem)


def test_a_missing_key_of_a_class_with_own_code_is_refused_not_guessed():
    with pytest.raises(InputError, match="'num_hidden_layers' is missing"):
        read(model_type="internlm2", architectures=["InternLM2ForCausalLM"], num_hidden_layers=...)


def test_refusals_point_at_the_line_of_the_file(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**LLAMA, "hidden_size": 1.5}, indent=1))

    with pytest.raises(InputError) as refusal:
        read_model(load_json(file), Origin(name="test"))

    assert str(refusal.value).startswith(f"{file}:6:")


@pytest.mark.parametrize(
    ("keys", "context"),
    [
        ({}, 131072),
        ({"max_position_embeddings": ...}, 2048),
        ({"max_position_embeddings": ..., "model_type": "own"}, 2048),
        ({"model_max_length": 4096}, 4096),
        ({"seq_length": 8192, "model_max_length": 4096}, 8192),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, 262144),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 262144),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 131072),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, 131072),
        (
            {"rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768}},
            131072,
        ),
        ({"rope_parameters": {"rope_type": "linear", "factor": 4}}, 524288),
    ],
)
def test_context_length_takes_the_first_key_and_plain_rope_scaling(keys, context):
    assert read(**keys).context_length == context


@pytest.mark.parametrize(
    ("keys", "dtype"),
    [
        ({}, "bfloat16"),
        ({"torch_dtype": ..., "dtype": "float16"}, "float16"),
        ({"torch_dtype": ...}, "float16"),
        ({"torch_dtype": "float32"}, "float16"),
        (
            {
                "torch_dtype": "float32",
                "model_type": "gemma2",
                "architectures": ["Gemma2ForCausalLM"],
            },
            "bfloat16",
        ),
    ],
)
def test_float32_checkpoints_are_served_in_half_precision(keys, dtype):
    assert read(**keys).dtype == dtype


@pytest.mark.parametrize(
    ("keys", "heads"),
    [
        ({"num_key_value_heads": ...}, Mha(num_kv_heads=32, head_dim=128, v_head_dim=128)),
        ({"head_dim": 64}, Mha(num_kv_heads=8, head_dim=64, v_head_dim=64)),
        ({"head_dim": 192, "v_head_dim": 128}, Mha(num_kv_heads=8, head_dim=192, v_head_dim=128)),
        (
            {
                "architectures": ["FalconForCausalLM"],
                "model_type": "falcon",
                "multi_query": True,
                "num_kv_heads": 8,
            },
            Mha(num_kv_heads=1, head_dim=128, v_head_dim=128),
        ),
        (
            {
                "architectures": ["FalconForCausalLM"],
                "model_type": "falcon",
                "new_decoder_architecture": True,
                "num_kv_heads": 8,
            },
            Mha(num_kv_heads=8, head_dim=128, v_head_dim=128),
        ),
        (
            {
                "architectures": ["DbrxForCausalLM"],
                "model_type": "dbrx",
                "attn_config": {"kv_n_heads": 4},
                "num_key_value_heads": ...,
            },
            Mha(num_kv_heads=4, head_dim=128, v_head_dim=128),
        ),
        (
            {
                "architectures": ["DeciLMForCausalLM"],
                "num_key_value_heads": None,
                "block_configs": [
                    {"attention": {"n_heads_in_group": 4, "no_op": False}},
                    {"attention": {"n_heads_in_group": None, "no_op": True}},
                ],
            },
            Mha(num_kv_heads=8, head_dim=128, v_head_dim=128),
        ),
    ],
)
def test_kv_heads_have_many_names(keys, heads):
    assert read(**keys).attention == heads


def test_class_defaults_fill_in_what_a_nested_text_config_leaves_out():
    gemma = model_from_config(
        {
            "architectures": ["Gemma3ForConditionalGeneration"],
            "model_type": "gemma3",
            "text_config": {"num_hidden_layers": 34, "hidden_size": 2560},
        },
        Origin(name="gemma"),
    )

    assert gemma.attention == Mha(num_kv_heads=4, head_dim=256, v_head_dim=256)
    assert gemma.context_length == 131072
    assert gemma.dtype == "bfloat16"
    assert not gemma.multimodal


@pytest.mark.parametrize(
    ("model_type", "tower", "size"),
    [
        ("qwen2_5_vl", {"depth": 32, "hidden_size": 1280}, Vision(num_layers=24, hidden_size=1280)),
        ("qwen2_5_vl", None, Vision(num_layers=24, hidden_size=3584)),
        ("mistral3", {"hidden_size": 512}, Vision(num_layers=24, hidden_size=512)),
        ("own", {"num_hidden_layers": 7}, Vision(num_layers=7, hidden_size=1024)),
        ("own", None, None),
    ],
)
def test_the_vision_tower_is_the_one_that_the_engine_sees(model_type, tower, size):
    model = read(
        architectures=["Qwen2_5_VLForConditionalGeneration"],
        model_type=model_type,
        vision_config=tower,
    )

    assert model.vision == size


@pytest.mark.parametrize(
    ("keys", "shared"),
    [
        ({}, ()),
        ({"index_topk_freq": 4, "index_skip_topk_offset": 3}, (3, 4, 5)),
        ({"index_topk_pattern": "FFSSFS"}, (2, 3, 5)),
        ({"indexer_types": ["full", "shared", "full", "full", "shared", "shared"]}, (1, 4, 5)),
        ({"index_topk_freq": 2}, (2, 4)),
    ],
)
def test_layers_that_share_topk_own_no_index_keys(keys, shared):
    model = read(
        architectures=["DeepseekV32ForCausalLM"],
        num_hidden_layers=6,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        index_topk=2048,
        index_head_dim=128,
        **keys,
    )

    assert model.attention == Mla(kv_lora_rank=512, qk_rope_head_dim=64)
    assert model.indexer == Indexer(head_dim=128, shared_topk_layers=shared)


@pytest.mark.parametrize(
    ("section", "name", "kv"),
    [
        (None, None, None),
        ({"quant_method": "fp8"}, "fp8", None),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "modelopt_fp4", None),
        (
            {
                "quant_method": "modelopt",
                "quant_algo": "NVFP4",
                "kv_cache_scheme": {"type": "float", "num_bits": 8},
            },
            "modelopt_fp4",
            "fp8_e4m3",
        ),
        ({"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, "modelopt_fp8", "fp8_e4m3"),
        (
            {
                "quant_method": "compressed-tensors",
                "kv_cache_scheme": {"type": "float", "num_bits": 8},
            },
            "compressed-tensors",
            None,
        ),
    ],
)
def test_a_checkpoints_quantisation_has_the_engines_name(section, name, kv):
    model = read(quantization_config=section)

    assert (model.quantization, model.kv_cache_dtype) == (name, kv)


def test_sinks_are_learned_always_or_by_a_flag():
    mimo = {
        "architectures": ["MiMoV2FlashForCausalLM"],
        "hybrid_layer_pattern": [1] * 32,
        "sliding_window": 128,
    }

    assert not read(**mimo).attention_sinks
    assert read(**mimo, add_swa_attention_sink_bias=True).attention_sinks
