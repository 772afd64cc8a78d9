"""Model classes that the engine runs in part: not at all, or without pipeline parallelism."""

from __future__ import annotations

# hybrid classes without code in the engine, sized by the rules of their kin
NO_CLASS = frozenset(
    {"BailingMoeLinearV2ForCausalLM", "MiniMaxM1ForCausalLM", "MiniMaxText01ForCausalLM"}
)
# classes whose forward pass takes no hidden states from an earlier stage
ONE_STAGE = """
AfmoeForCausalLM BaichuanForCausalLM ChatGLMModel Cohere2ForCausalLM Cohere2MoeForCausalLM
Cohere2VisionForConditionalGeneration CohereForCausalLM DbrxForCausalLM DeepseekForCausalLM
DeepseekOCRForCausalLM DeepseekVL2ForCausalLM DiffusionGemmaForBlockDiffusion DotsOCRForCausalLM
Ernie4_5_ForCausalLM Ernie4_5_MoeForCausalLM Ernie4_5_VLMoeForConditionalGeneration
ExaoneForCausalLM FalconH1ForCausalLM GPT2LMHeadModel GPTBigCodeForCausalLM GPTJForCausalLM
Gemma2ForCausalLM Gemma3ForCausalLM Gemma3ForConditionalGeneration Gemma3nForCausalLM
Gemma3nForConditionalGeneration Gemma4UnifiedForConditionalGeneration GemmaForCausalLM
GraniteForCausalLM GraniteMoeForCausalLM GraniteMoeSWAForCausalLM GraniteMoeSharedForCausalLM
GraniteSWAForCausalLM Grok1ForCausalLM Grok1ModelForCausalLM HYV3ForCausalLM HYV4ForCausalLM
HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM IQuestLoopCoderForCausalLM IQuestQ1ForCausalLM
InklingForConditionalGeneration InternLM2ForCausalLM InternS1ForConditionalGeneration
InternVLChatModel JetNemotronForCausalLM JetVLMForConditionalGeneration
KimiVLForConditionalGeneration Lfm2ForCausalLM Lfm2MoeForCausalLM Lfm2VlForConditionalGeneration
LightOnOCRForConditionalGeneration Llama4ForConditionalGeneration LlavaLlamaForCausalLM
LlavaMistralForCausalLM LlavaQwenForCausalLM LlavaVidForCausalLM
LocateAnythingForConditionalGeneration LongcatFlashForCausalLM MiDashengLMModel MiMoForCausalLM
MiniCPM3ForCausalLM MiniCPMForCausalLM MiniCPMO MllamaForConditionalGeneration
MultiModalityCausalLM MuseGlimmerForCausalLM MuseGlimmerForConditionalGeneration
MuseSparkForConditionalGeneration NVILAForConditionalGeneration NVILALiteForConditionalGeneration
NemotronH_Nano_Omni_Reasoning_V3 NemotronH_Nano_VL_V2 NemotronH_Omni_Reasoning_V3 Olmo2ForCausalLM
OlmoForCausalLM OlmoeForCausalLM OrionForCausalLM POINTSV15ChatModel
PaddleOCRVLForConditionalGeneration PersimmonForCausalLM Phi3SmallForCausalLM Phi4MMForCausalLM
PhiForCausalLM PhiMoEForCausalLM PixtralForConditionalGeneration QWenLMHeadModel
QuantMixtralForCausalLM Qwen2AudioForConditionalGeneration Qwen2VLForConditionalGeneration
Qwen3ASRForConditionalGeneration Qwen3NextForCausalLM Sarashina2VisionForCausalLM
StableLmForCausalLM Starcoder2ForCausalLM Step3VLForConditionalGeneration
Step3p7ForConditionalGeneration StepVLForConditionalGeneration TorchNativeLlamaForCausalLM
TorchNativePhi3ForCausalLM UnlimitedOCRForCausalLM VoxtralForConditionalGeneration
XverseForCausalLM XverseMoeForCausalLM
"""


def class_problems(architecture: str, pp_size: int) -> tuple[str, ...]:
    """What the engine will not do with a class, found once the model is built."""
    if architecture in NO_CLASS:
        return (
            f"the engine has no model class {architecture}: sized by the rules of lightning hybrids",
        )
    if pp_size > 1 and architecture in ONE_STAGE.split():
        return (f"the engine will not start {architecture} with pipeline parallelism",)
    return ()
