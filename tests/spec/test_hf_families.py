"""Families beyond the recorded ones: each encoding of layers and state, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.errors import InputError
from kvplan.sizing.shapes import stage_layers, state_shapes
from kvplan.spec.hf.read import Origin, model_from_config
from kvplan.spec.model import Mha, Mla, ModelSpec, Sliding

BASE = {
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "num_hidden_layers": 12,
    "max_position_embeddings": 4096,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}
LATENT: dict[str, Any] = {
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
}
FULL, SLIDES, LINEAR = "full_attention", "sliding_attention", "linear_attention"


def read(architecture: str, model_type: str | None = None, **keys: Any) -> ModelSpec:
    config = {"architectures": [architecture], "model_type": model_type, **BASE, **keys}
    given = {key: value for key, value in config.items() if value is not ...}
    return model_from_config(given, Origin(name="test"))


@pytest.mark.parametrize(
    ("architecture", "keys", "layers", "window"),
    [
        ("GptOssForCausalLM", {"sliding_window": 128}, range(0, 12, 2), 127),
        ("GraniteSWAForCausalLM", {"sliding_window": 128}, {1, 2, 3, 5, 6, 7, 9, 10, 11}, 128),
        (
            "BeamForCausalLM",
            {"sliding_window": 512, "num_hidden_layers": 8},
            {0, 1, 2, 3, 4, 6},
            511,
        ),
        (
            "IQuestQ1ForCausalLM",
            {"sliding_window": 4096, "num_hybrid_layers_block": 2},
            {2, 3, 4, 6, 7, 8},
            4096,
        ),
        (
            "MellumForCausalLM",
            {"sliding_window": 1024, "layer_types": [FULL, SLIDES] * 6},
            range(1, 12, 2),
            1023,
        ),
        (
            "MuseSparkForConditionalGeneration",
            {"sliding_window": 2048, "layer_types": [SLIDES] * 11 + [FULL]},
            range(11),
            2047,
        ),
        ("Spark2_5ForCausalLM", {"sliding_window": 512}, {0, 1, 2, 4, 5, 6, 8, 9, 10}, 511),
        (
            "Step3p5ForCausalLM",
            {"sliding_window": 512, "layer_types": [FULL, SLIDES, SLIDES] * 5},
            {1, 2, 4, 5, 7, 8, 10, 11},
            512,
        ),
        ("UnlimitedOCRForCausalLM", {"sliding_window_size": 300}, range(12), 300),
        (
            "MiMoV2FlashForCausalLM",
            {"sliding_window_size": 64, "sliding_window": 128, "hybrid_layer_pattern": [0, 1] * 6},
            range(1, 12, 2),
            64,
        ),
    ],
)
def test_sliding_layers_and_their_window(architecture, keys, layers, window):
    sliding = read(architecture, **keys).sliding

    assert sliding is not None
    assert sliding.layers == tuple(sorted(layers))
    assert sliding.window == window


@pytest.mark.parametrize(
    ("architecture", "keys"),
    [
        ("BeamForCausalLM", {"layer_types": [FULL] * 12}),
        ("LagunaForCausalLM", {"layer_types": [SLIDES] * 12, "sliding_window": None}),
        ("Gemma2ForCausalLM", {"sliding_window": 4096}),
        ("MistralForCausalLM", {"sliding_window": 4096}),
        ("Olmo3ForCausalLM", {"sliding_window": 4096, "layer_types": [SLIDES, FULL] * 6}),
    ],
)
def test_models_that_keep_one_pool(architecture, keys):
    assert read(architecture, **keys).sliding is None


def test_a_two_pool_model_without_sliding_layers_is_refused():
    with pytest.raises(InputError, match="no layer slides"):
        read("MellumForCausalLM", layer_types=[FULL] * 12, sliding_window=128)


def test_gemma_4_names_the_sliding_heads_first():
    gemma = read(
        "Gemma4ForCausalLM",
        "gemma4_text",
        num_hidden_layers=6,
        head_dim=256,
        num_key_value_heads=8,
        global_head_dim=512,
        num_global_key_value_heads=2,
        attention_k_eq_v=True,
        sliding_window=1024,
    )
    ungrouped = read(
        "Gemma4ForCausalLM", "gemma4_text", num_global_key_value_heads=2, sliding_window=8
    )

    assert gemma.attention == Mha(num_kv_heads=2, head_dim=512, v_head_dim=512)
    assert gemma.sliding == Sliding(
        window=1023, layers=(0, 1, 2, 3, 4), num_kv_heads=8, head_dim=256, v_head_dim=256
    )
    assert ungrouped.attention == Mha(num_kv_heads=4, head_dim=512, v_head_dim=512)


DELTA_NET: dict[str, Any] = {
    "linear_num_key_heads": 8,
    "linear_num_value_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 64,
    "linear_conv_kernel_dim": 4,
}
JET = {"jet": {"num_heads": 8, "head_dim": 96, "expand_v": 2.0, "conv_size": 4}}
KDA = {
    "kda_layers": [0, 1, 2, 4, 5, 6, 8, 9, 10],
    "full_attn_layers": [3, 7, 11],
    "num_heads": 16,
    "head_dim": 128,
    "short_conv_kernel_size": 4,
}
DELTA_SHAPES = ((((2 * 8 * 128 + 16 * 64) // 2, 3),), (8, 64, 128))
KDA_SHAPES = (((3, 3 * 16 * 128 // 2),), (8, 128, 128))
LIGHTNING = (((0, 0),), (8, 64, 64))
EVERY_FOURTH = (3, 7, 11)


@pytest.mark.parametrize(
    ("architecture", "keys", "full", "shapes"),
    [
        (
            "Qwen3NextForCausalLM",
            {**DELTA_NET, "full_attention_interval": 4},
            EVERY_FOURTH,
            DELTA_SHAPES,
        ),
        (
            "Qwen3_5ForCausalLM",
            {**DELTA_NET, "layer_types": [LINEAR] * 8 + [FULL] * 4},
            (8, 9, 10, 11),
            DELTA_SHAPES,
        ),
        (
            "GigaChat35ForCausalLM",
            {**LATENT, **DELTA_NET, "full_attention_layers": [0, 6]},
            (0, 6),
            DELTA_SHAPES,
        ),
        (
            "JetNemotronForCausalLM",
            {"efficient_attention_config": JET, "layer_types": ["jet", "attn", "jet", "swa"] * 3},
            (1, 3, 5, 7, 9, 11),
            (((8 * (192 + 2 * 96) // 2, 3),), (4, 192, 96)),
        ),
        (
            "Glm5NextForConditionalGeneration",
            {**LATENT, "linear_attn_config": KDA},
            EVERY_FOURTH,
            KDA_SHAPES,
        ),
        (
            "Glm5NextForConditionalGeneration",
            {**LATENT, "linear_num_heads": 16, "linear_head_dim": 128},
            EVERY_FOURTH,
            KDA_SHAPES,
        ),
        ("BailingMoeLinearV2ForCausalLM", {"layer_group_size": 4}, EVERY_FOURTH, LIGHTNING),
        (
            "BailingMoeV2_5ForCausalLM",
            {**LATENT, "layer_group_size": [1, 1, 1, 0] * 3},
            EVERY_FOURTH,
            LIGHTNING,
        ),
        ("MiniMaxM1ForCausalLM", {"attn_type_list": [0, 0, 0, 1] * 3}, EVERY_FOURTH, LIGHTNING),
        (
            "Lfm2ForCausalLM",
            {"full_attn_idxs": [2, 5], "conv_L_cache": 3},
            (2, 5),
            (((512, 2),), (1, 1024, 0)),
        ),
        (
            "ZayaForCausalLM",
            {"cca_time0": 2, "cca_time1": 3},
            (0, 2, 4, 6, 8, 10),
            ((((16 + 4) * 64 // 2, 3), (1024, 1)), (1, 1, 0)),
        ),
    ],
)
def test_linear_layers_and_their_state_on_two_ranks(architecture, keys, full, shapes):
    linear = read(architecture, **keys).linear

    assert linear is not None
    assert linear.full_attention_layers == full
    found = state_shapes(linear.state, 2)
    assert (found.conv, found.temporal) == shapes


def test_a_hybrid_without_linear_layers_is_a_plain_model():
    granite = read(
        "GraniteMoeHybridForCausalLM", "granitemoehybrid", layer_types=["attention"] * 12
    )

    assert granite.linear is None
    assert granite.attention == Mha(num_kv_heads=4, head_dim=64, v_head_dim=64)


def test_a_state_dtype_counts_where_the_engine_reads_it():
    read_it = read(
        "Qwen3NextForCausalLM", **DELTA_NET, full_attention_interval=4, mamba_ssm_dtype="bfloat16"
    )
    ignores_it = read("MiniMaxM1ForCausalLM", attn_type_list=[0, 1] * 6, mamba_ssm_dtype="bfloat16")

    assert read_it.linear is not None
    assert ignores_it.linear is not None
    assert (read_it.linear.ssm_dtype, ignores_it.linear.ssm_dtype) == ("bfloat16", "float32")


def test_inkling_slides_and_convolves():
    inkling = read(
        "InklingForConditionalGeneration",
        local_layer_ids=[0, 1, 2],
        sliding_window_size=512,
        swa_num_key_value_heads=8,
        sconv_kernel_size=4,
    )
    layers = stage_layers(inkling, range(0, 6))

    assert (layers.full, layers.sliding, layers.linear) == ((3, 4, 5), (0, 1, 2), tuple(range(6)))
    assert inkling.linear is not None
    windows = state_shapes(inkling.linear.state, 4).conv
    assert windows == ((3, 64), (3, 64), (3, 128), (3, 128), (3, 1024), (3, 1024))
    assert not inkling.multimodal


def test_two_attentions_in_a_layer_and_loops_multiply_kv():
    longcat = read(
        "LongcatFlashForCausalLM", "longcat_flash", num_hidden_layers=..., num_layers=28, **LATENT
    )

    assert (longcat.num_layers, longcat.kv_layers_per_layer) == (28, 2)
    assert longcat.attention == Mla(kv_lora_rank=512, qk_rope_head_dim=64)
    assert read("NanbeigeForCausalLM").kv_layers_per_layer == 2
    # the engine multiplies by the loops once for the layers and once more for the pool
    assert read("IQuestLoopCoderForCausalLM", loop_num=3).kv_layers_per_layer == 9


def test_longcat_is_known_by_its_class_whatever_the_config_leaves_out():
    # the public config has no model_type, no dtype and no MTP count
    config = {"architectures": ["LongcatFlashForCausalLM"], "num_layers": 28}

    longcat = model_from_config(config, Origin(name="longcat"))

    assert (longcat.num_layers, longcat.kv_layers_per_layer, longcat.mtp_layers) == (28, 2, 1)
    assert (longcat.dtype, longcat.context_length) == ("bfloat16", 131072)
    assert longcat.attention == Mla(kv_lora_rank=512, qk_rope_head_dim=128)


def test_longcat_counts_two_attentions_and_two_dense_mlps_around_one_mixture():
    weights = read(
        "LongcatFlashForCausalLM",
        "longcat_flash",
        num_hidden_layers=...,
        hidden_size=6144,
        num_attention_heads=64,
        kv_lora_rank=512,
        q_lora_rank=1536,
        qk_rope_head_dim=64,
        vocab_size=131072,
    ).weights

    assert weights is not None
    assert weights.num_params is not None
    # published as 560 billion parameters
    assert weights.num_params == pytest.approx(560e9, rel=0.01)


def test_rope_free_latents_and_text_only_pixtral():
    ling = read("BailingMoeV3ForCausalLM", **LATENT, use_mla_nope=True, layer_group_size=4)

    assert ling.attention == Mla(kv_lora_rank=512, qk_rope_head_dim=0)
    assert isinstance(read("PixtralForConditionalGeneration").attention, Mha)
    assert isinstance(read("PixtralForConditionalGeneration", **LATENT).attention, Mla)
    assert isinstance(read("DeepseekVL2ForCausalLM", **LATENT, use_mla=False).attention, Mha)


def test_hy_4_has_one_indexer_in_four():
    indexer = read("HYV4ForCausalLM", **LATENT, index_topk=2048, index_head_dim=128).indexer

    assert indexer is not None
    assert indexer.shared_topk_layers == (2, 3, 4, 6, 7, 8, 10, 11)


@pytest.mark.parametrize(
    ("key", "names"),
    [("text_config", "text"), ("llm_config", "llm"), ("language_config", "language")],
)
def test_nested_text_configs_are_found_under_each_name(key, names):
    inner = {**BASE, "model_type": "qwen2", "num_hidden_layers": 5}
    model = model_from_config(
        {"architectures": ["InternVLChatModel"], "model_type": "internvl_chat", key: inner},
        Origin(name=names),
    )

    assert model.num_layers == 5
    assert model.multimodal


def test_a_thinker_nests_twice():
    inner = {**BASE, "num_hidden_layers": 7}
    model = model_from_config(
        {
            "architectures": ["Qwen3OmniMoeForConditionalGeneration"],
            "model_type": "qwen3_omni_moe",
            "thinker_config": {"text_config": inner},
            "talker_config": {"text_config": {"num_hidden_layers": 99}},
        },
        Origin(name="omni"),
    )

    assert model.num_layers == 7


def test_deepseek_v4_1_is_refused_by_its_type():
    with pytest.raises(InputError, match="deepseek_v41 is not modelled"):
        read("DeepseekV41ForCausalLM", "deepseek_v41", compress_ratios=[1, 2] * 6)
