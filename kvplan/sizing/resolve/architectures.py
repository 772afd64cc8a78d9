"""What the engine sets for single architectures, as rows of data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

Unless = Literal["any", "base"]


class BackendRow(msgspec.Struct, frozen=True):
    """Default attention backend by card family ("*": any other); where None, the general rule.

    `unless` says which given backend keeps the row out: any of the three, or the base one.
    """

    by_family: Mapping[str, str]
    unless: Unless = "base"


class Accepted(msgspec.Struct, frozen=True):
    """Backends that an architecture runs on: both phases, or the base backend only."""

    backends: frozenset[str]
    both_phases: bool = True


def rows(*groups: tuple[Iterable[str], BackendRow]) -> dict[str, BackendRow]:
    """One row an architecture from groups that share one."""
    return {name: row for names, row in groups for name in names}


QWEN_HYBRID = (
    "Qwen3NextForCausalLM",
    "Qwen3_5MoeForConditionalGeneration",
    "InternS2PreviewForConditionalGeneration",
    "InternS2MobiusForConditionalGeneration",
    "Qwen3_5ForConditionalGeneration",
    "Qwen4ExpForConditionalGeneration",
)
NEMOTRON_H = (
    "NemotronHForCausalLM",
    "NemotronHPuzzleForCausalLM",
    "NemotronH_Omni_Reasoning_V3",
)
KIMI_HYBRID = ("KimiLinearForCausalLM", "KimiK3ForConditionalGeneration")
DEEPSEEK = (
    "DeepseekV3ForCausalLM",
    "DeepseekV32ForCausalLM",
    "KimiK25ForConditionalGeneration",
    "MistralLarge3ForCausalLM",
    "PixtralForConditionalGeneration",
    "GlmMoeDsaForCausalLM",
    "Glm5NextForConditionalGeneration",
    "HYV4ForCausalLM",
    "LongcatFlashForCausalLM",
    "Dots3NoteForCausalLM",
)
GEMMA4 = (
    "Gemma4ForConditionalGeneration",
    "Gemma4ForCausalLM",
    "Gemma4UnifiedForConditionalGeneration",
)
LLAMA4 = ("Llama4ForConditionalGeneration", "Llama4ForCausalLM")
LFM2 = ("Lfm2ForCausalLM", "Lfm2MoeForCausalLM")
OLMO = ("Olmo2ForCausalLM", "Olmo3ForCausalLM")
MIMO_V2 = ("MiMoV2ForCausalLM", "MiMoV2FlashForCausalLM")
STEP3P = ("Step3p5ForCausalLM", "Step3p7ForConditionalGeneration")
MINIMAX_M3 = ("MiniMaxM3SparseForCausalLM", "MiniMaxM3SparseForConditionalGeneration")
INKLING = ("InklingForConditionalGeneration", "InklingForConditionalGenerationMTP")
QWEN3_VL = ("Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration")
MUSE_SPARK = ("MuseSparkForConditionalGeneration",)

BACKENDS = rows(
    (
        ("GptOssForCausalLM",),
        BackendRow(
            {"sm100": "trtllm_mha", "sm90": "fa3", "hip": "aiter", "*": "triton"}, unless="any"
        ),
    ),
    (
        LLAMA4,
        BackendRow({"sm100": "trtllm_mha", "sm90": "fa3", "hip": "aiter", "*": "triton"}),
    ),
    (GEMMA4, BackendRow({"sm100": "trtllm_mha", "*": "triton"})),
    (DEEPSEEK, BackendRow({"sm100": "trtllm_mla"}, unless="any")),
    (
        OLMO,
        BackendRow(
            {
                "sm100": "trtllm_mha",
                **dict.fromkeys(("sm80", "sm90", "sm110", "sm120"), "fa3"),
                "*": "triton",
            }
        ),
    ),
    (
        ("FalconH1ForCausalLM", "JetNemotronForCausalLM", "JetVLMForConditionalGeneration"),
        BackendRow({"sm100": "triton"}),
    ),
    (
        ("MiniCPMV4_6ForConditionalGeneration", "MiniCPMV4_7ForConditionalGeneration"),
        BackendRow({"sm100": "triton"}),
    ),
    ((*LFM2, "GraniteMoeHybridForCausalLM"), BackendRow({"sm100": "flashinfer"})),
    (MIMO_V2, BackendRow({"sm100": "fa4"}, unless="any")),
    (
        STEP3P,
        BackendRow({"sm90": "fa3", "sm100": "fa4", "sm110": "fa4", "sm120": "fa4"}, unless="any"),
    ),
    (
        ("BeamForCausalLM",),
        BackendRow(dict.fromkeys(("sm90", "sm100", "sm120"), "trtllm_mha"), unless="any"),
    ),
    (INKLING, BackendRow({"sm90": "fa4", "sm100": "fa4", "*": "triton"}, unless="any")),
    (
        MINIMAX_M3,
        BackendRow({"sm90": "fa3", "sm100": "fa4", "hip": "triton"}, unless="any"),
    ),
)

ACCEPTED = {
    "GptOssForCausalLM": Accepted(
        frozenset(
            {"triton", "trtllm_mha", "fa3", "fa4", "ascend", "intel_amx", "intel_xpu", "aiter"}
        )
    ),
    **dict.fromkeys(
        GEMMA4,
        Accepted(
            frozenset({"trtllm_mha", "triton", "fa4", "ascend", "intel_xpu", "intel_amx", "aiter"})
        ),
    ),
    **dict.fromkeys(
        LLAMA4,
        Accepted(
            frozenset({"fa3", "aiter", "triton", "ascend", "trtllm_mha", "intel_xpu"}),
            both_phases=False,
        ),
    ),
}
EXCLUDED = {**dict.fromkeys(OLMO, "flashinfer"), **dict.fromkeys(LFM2, "triton")}

# hybrid linear models whose radix cache keeps states, and which of them can track them in
# extra buffers (the others cache without overlap and at page size 1)
STATE_CACHE = frozenset(
    {
        *KIMI_HYBRID,
        *QWEN_HYBRID,
        *NEMOTRON_H,
        *LFM2,
        "BailingMoeV2_5ForCausalLM",
        "BailingMoeV3ForCausalLM",
        "BailingMoeV3VLForConditionalGeneration",
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5ForCausalLM",
        "MiniCPMV4_6ForConditionalGeneration",
        "MiniCPMV4_7ForConditionalGeneration",
        "FalconH1ForCausalLM",
        "JetNemotronForCausalLM",
        "JetVLMForConditionalGeneration",
        "ZayaForCausalLM",
        "Glm5NextForConditionalGeneration",
        "GraniteMoeHybridForCausalLM",
        "GigaChat35ForCausalLM",
    }
)
EXTRA_BUFFER = (
    STATE_CACHE
    - {
        *LFM2,
        "InternS2MobiusForConditionalGeneration",
        "JetNemotronForCausalLM",
        "JetVLMForConditionalGeneration",
        "ZayaForCausalLM",
        "GigaChat35ForCausalLM",
    }
) | {*INKLING}

MULTI_LAYER_EAGLE = frozenset({*MIMO_V2, *STEP3P, "GigaChat35ForCausalLM"})
TREE_DEFAULTS = frozenset({"LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM"})
NO_PIPELINE = frozenset({"IQuestQ1ForCausalLM", "InternS2MobiusForConditionalGeneration"})
NO_DP_ATTENTION = frozenset(
    {
        "Ernie4_5_VLMoeForConditionalGeneration",
        "IQuestQ1ForCausalLM",
        "MiniCPMForCausalLM",
        "MiniCPMSALAForCausalLM",
    }
)
# absorbed latent attention, which deterministic inference serves on few backends
ABSORBED_MLA = frozenset(
    {
        "DeepseekV2ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "MistralLarge3ForCausalLM",
        "PixtralForConditionalGeneration",
        "GlmMoeDsaForCausalLM",
        "Glm4MoeLiteForCausalLM",
    }
)
