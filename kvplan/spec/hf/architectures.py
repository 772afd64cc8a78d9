"""Which model classes exist and how each is read: one row a family, one name a class."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kvplan.errors import UnknownArchitecture, nearest
from kvplan.spec.hf import (
    attention,
    convolution,
    delta,
    indexing,
    lightning,
    mamba,
    sliding,
)
from kvplan.spec.hf.config import Config
from kvplan.spec.hf.linear import LinearRule
from kvplan.spec.hf.sliding import SlidingRule
from kvplan.spec.model import Compressed, Indexer, Mha, Mla, Sparse


class Family(NamedTuple):
    """How the classes of one family write down what sizing needs."""

    attention: Callable[[Config], Mha | Mla] = attention.heads
    sliding: SlidingRule | None = None
    linear: LinearRule | None = None
    indexer: Callable[[Config], Indexer | None] | None = None
    sparse: Callable[[Config], Sparse | None] | None = None
    compressed: Callable[[Config], Compressed | None] | None = None
    num_layers: Callable[[Config], int] = Config.layers
    kv_layers_key: str | None = None  # names how often a layer holds KV
    kv_layers_default: int = 1
    kv_layers_squared: bool = False  # the engine multiplies by the loops twice


HEADS = Family()
LATENT = Family(attention=attention.latent)
DSA = Family(attention=attention.latent, indexer=indexing.dsa_indexer)
GEMMA_4 = Family(attention=attention.gemma4_heads, sliding=sliding.GEMMA_4)
NEMOTRON_H = Family(linear=mamba.nemotron_h, num_layers=mamba.nemotron_layers)
QWEN_HYBRID = Family(linear=delta.qwen_delta_net)
KIMI_HYBRID = Family(attention=attention.latent, linear=delta.kimi_delta)
LFM_2 = Family(linear=convolution.short_conv)
SPARSE = Family(sparse=indexing.minimax_sparse)
LONGCAT = Family(attention=attention.latent, indexer=indexing.no_indexer, kv_layers_default=2)

# grouped-query attention in one pool, whatever windows the config declares
PLAIN = """
AfmoeForCausalLM ApertusForCausalLM ArceeForCausalLM BaichuanForCausalLM BailingMoEForCausalLM
BailingMoeForCausalLM BailingMoeV2ForCausalLM ChatGLMForConditionalGeneration ChatGLMModel
Cohere2ForCausalLM Cohere2MoeForCausalLM CohereForCausalLM DbrxForCausalLM DeepseekForCausalLM
Ernie4_5ForCausalLM Ernie4_5_ForCausalLM Ernie4_5_MoeForCausalLM Exaone4ForCausalLM
ExaoneForCausalLM ExaoneMoEForCausalLM ExaoneMoeForCausalLM GPT2LMHeadModel
GPTBigCodeForCausalLM GPTJForCausalLM Gemma2ForCausalLM Gemma3ForCausalLM Gemma3nForCausalLM
GemmaForCausalLM Glm4ForCausalLM Glm4MoeForCausalLM GraniteForCausalLM GraniteMoeForCausalLM
GraniteMoeSharedForCausalLM Grok1ForCausalLM Grok1ModelForCausalLM HYV3ForCausalLM
HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM IQuestCoderForCausalLM InternLM2ForCausalLM
InternLM3ForCausalLM K2HorizonForCausalLM LLaDA2MoeModelLM Llama4ForCausalLM LlamaForCausalLM
MiMoForCausalLM MiniCPMForCausalLM MiniMaxM2ForCausalLM Ministral3ForCausalLM
MistralForCausalLM MixtralForCausalLM OPTForCausalLM Olmo2ForCausalLM Olmo3ForCausalLM
OlmoForCausalLM OlmoeForCausalLM OrionForCausalLM PersimmonForCausalLM Phi3ForCausalLM
Phi3SmallForCausalLM PhiForCausalLM PhiMoEForCausalLM PhimoeForCausalLM QWenLMHeadModel
QuantMixtralForCausalLM Qwen2ForCausalLM Qwen2MoeForCausalLM Qwen3ForCausalLM
Qwen3MoeForCausalLM SDARForCausalLM SDARMoeForCausalLM SarvamMoEForCausalLM SolarForCausalLM
StableLmForCausalLM Starcoder2ForCausalLM TeleFLMForCausalLM TorchNativeLlamaForCausalLM
TorchNativePhi3ForCausalLM XllmForCausalLM XverseForCausalLM XverseMoeForCausalLM
"""
# plain classes that the engine serves through transformers
PLAIN_BY_TRANSFORMERS = """
BitNetForCausalLM BloomForCausalLM CodeGenForCausalLM CwmForCausalLM DiffLlamaForCausalLM
Dots1ForCausalLM FalconForCausalLM FlexOlmoForCausalLM GPTNeoForCausalLM GPTNeoXForCausalLM
GlmForCausalLM HeliumForCausalLM Jais2ForCausalLM MinistralForCausalLM MptForCausalLM
NanoChatForCausalLM NemotronForCausalLM SeedOssForCausalLM SmolLM3ForCausalLM
SolarOpenForCausalLM VaultGemmaForCausalLM
"""
# plain attention with more than text around it; all of these reserve the embedding cache
PLAIN_MULTIMODAL = """
BailingMM2NativeForConditionalGeneration BailingMMNativeForConditionalGeneration
Cohere2VisionForConditionalGeneration Cosmos3EdgeForConditionalGeneration
Cosmos3ForConditionalGeneration DeepseekOCRForCausalLM DotsOCRForCausalLM
Ernie4_5_VLMoeForConditionalGeneration Gemma3ForConditionalGeneration
Gemma3nForConditionalGeneration Glm4vForConditionalGeneration
Glm4vMoeForConditionalGeneration GlmOcrForConditionalGeneration
InternS1ForConditionalGeneration InternS1ProForConditionalGeneration InternVLChatModel
LightOnOCRForConditionalGeneration LlavaForConditionalGeneration LlavaLlamaForCausalLM
LlavaMistralForCausalLM LlavaQwenForCausalLM LlavaVidForCausalLM
LocateAnythingForConditionalGeneration MiDashengLMModel
MiMoV2ASRForCausalLM MiniCPMO MiniCPMV Mistral3ForConditionalGeneration
MllamaForConditionalGeneration MultiModalityCausalLM NVILAForConditionalGeneration NVILALiteForConditionalGeneration
POINTSV15ChatModel PaddleOCRVLForConditionalGeneration Phi4MMForCausalLM
Qwen2AudioForConditionalGeneration Qwen2VLForConditionalGeneration
Qwen2_5_VLForConditionalGeneration Qwen3ASRForConditionalGeneration
Qwen3OmniMoeForConditionalGeneration Qwen3VLForConditionalGeneration
Qwen3VLMoeForConditionalGeneration Sarashina2VisionForCausalLM
Step3VLForConditionalGeneration StepVLForConditionalGeneration
VoxtralForConditionalGeneration
"""
DRAFTS = """
DFlash2BeamDraftModel DFlash2DraftModel DFlashDraftModel DFlashLagunaForCausalLM
DSparkDraftModel LingDSparkModel LlamaForCausalLMEagle LlamaForCausalLMEagle3
MiniMaxDFlash2DraftModel MistralForCausalLMEagle Qwen2ForCausalLMEagle Qwen3DSparkModel
"""

ARCHITECTURES: dict[str, Family] = {
    **dict.fromkeys(PLAIN.split(), HEADS),
    **dict.fromkeys(PLAIN_BY_TRANSFORMERS.split(), HEADS),
    **dict.fromkeys(PLAIN_MULTIMODAL.split(), HEADS),
    **dict.fromkeys(DRAFTS.split(), HEADS),
    "DeciLMForCausalLM": Family(attention=attention.nas_heads),
    "IQuestLoopCoderForCausalLM": Family(kv_layers_key="loop_num", kv_layers_squared=True),
    "NanbeigeForCausalLM": Family(kv_layers_key="num_loops", kv_layers_default=2),
    # latent caches
    "DeepseekV2ForCausalLM": LATENT,
    "DeepseekV3ForCausalLM": DSA,
    "DeepseekV32ForCausalLM": DSA,
    "DeepseekVL2ForCausalLM": Family(attention=attention.latent_unless_refused),
    "DotsVLMForCausalLM": LATENT,
    "Eagle3DeepseekV2ForCausalLM": LATENT,
    "Glm4MoeLiteForCausalLM": LATENT,
    "GlmMoeDsaForCausalLM": DSA,
    "HYV4ForCausalLM": Family(attention=attention.latent, indexer=indexing.hy_v4_indexer),
    "KimiK25ForConditionalGeneration": LATENT,
    "KimiVLForConditionalGeneration": LATENT,
    "LongcatCausalLM": LONGCAT,
    "LongcatFlashForCausalLM": LONGCAT,
    "LongcatFlashNgramForCausalLM": LONGCAT,
    "MiniCPM3ForCausalLM": LATENT,
    "MistralLarge3ForCausalLM": DSA,
    "MistralLarge3ForCausalLMEagle": LATENT,
    "PixtralForConditionalGeneration": Family(
        attention=attention.latent_if_ranked, indexer=indexing.dsa_indexer
    ),
    "SarvamMLAForCausalLM": LATENT,
    # full and sliding pools
    "BeamForCausalLM": Family(sliding=sliding.BEAM),
    "DiffusionGemmaForBlockDiffusion": GEMMA_4,
    "Gemma4AssistantForCausalLM": Family(attention=attention.gemma4_heads),
    "Gemma4ForCausalLM": GEMMA_4,
    "Gemma4ForConditionalGeneration": GEMMA_4,
    "Gemma4UnifiedAssistantForCausalLM": Family(attention=attention.gemma4_heads),
    "Gemma4UnifiedForConditionalGeneration": GEMMA_4,
    "GptOssForCausalLM": Family(sliding=sliding.GPT_OSS),
    "GraniteMoeSWAForCausalLM": Family(sliding=sliding.GRANITE_SWA),
    "GraniteSWAForCausalLM": Family(sliding=sliding.GRANITE_SWA),
    "IQuestQ1ForCausalLM": Family(sliding=sliding.IQUEST_Q1),
    "LagunaForCausalLM": Family(sliding=sliding.LAGUNA),
    "Llama4ForConditionalGeneration": Family(sliding=sliding.LLAMA_4),
    "MellumForCausalLM": Family(sliding=sliding.INCLUSIVE),
    "MiMoV2FlashForCausalLM": Family(sliding=sliding.MIMO_V2),
    "MiMoV2ForCausalLM": Family(sliding=sliding.MIMO_V2),
    "MuseGlimmerForCausalLM": Family(sliding=sliding.INCLUSIVE),
    "MuseGlimmerForConditionalGeneration": Family(sliding=sliding.INCLUSIVE),
    "MuseSparkForConditionalGeneration": Family(sliding=sliding.MUSE_SPARK),
    "Spark2_5ForCausalLM": Family(sliding=sliding.SPARK),
    "Step3p5ForCausalLM": Family(sliding=sliding.STEP_3P5),
    "Step3p7ForConditionalGeneration": Family(sliding=sliding.STEP_3P5),
    "UnlimitedOCRForCausalLM": Family(sliding=sliding.UNLIMITED_OCR),
    # recurrent state
    "BailingMoeLinearV2ForCausalLM": Family(linear=lightning.bailing_hybrid),
    "BailingMoeV2_5ForCausalLM": Family(
        attention=attention.latent, linear=lightning.bailing_hybrid
    ),
    "BailingMoeV3ForCausalLM": Family(
        attention=attention.latent_without_rope, linear=lightning.bailing_hybrid
    ),
    "BailingMoeV3VLForConditionalGeneration": Family(
        attention=attention.latent_without_rope, linear=lightning.bailing_hybrid
    ),
    "FalconH1ForCausalLM": Family(linear=mamba.falcon_h1),
    "GigaChat35ForCausalLM": Family(attention=attention.latent, linear=delta.gigachat_delta_net),
    "Glm5NextForConditionalGeneration": Family(
        attention=attention.latent, linear=delta.glm_delta, indexer=indexing.dsa_indexer
    ),
    "GraniteMoeHybridForCausalLM": Family(linear=mamba.granite_hybrid),
    "InklingForConditionalGeneration": Family(
        sliding=sliding.INKLING, linear=convolution.inkling_conv
    ),
    "InternS2MobiusForConditionalGeneration": QWEN_HYBRID,
    "InternS2PreviewForConditionalGeneration": QWEN_HYBRID,
    "JetNemotronForCausalLM": Family(linear=delta.jet_delta_net),
    "JetVLMForConditionalGeneration": Family(linear=delta.jet_delta_net),
    "KimiK3ForConditionalGeneration": KIMI_HYBRID,
    "KimiK3LinearForCausalLM": KIMI_HYBRID,
    "KimiLinearForCausalLM": KIMI_HYBRID,
    "Lfm2ForCausalLM": LFM_2,
    "Lfm2MoeForCausalLM": LFM_2,
    "Lfm2VlForConditionalGeneration": LFM_2,
    "MiniCPMV4_6ForConditionalGeneration": QWEN_HYBRID,
    "MiniCPMV4_7ForConditionalGeneration": QWEN_HYBRID,
    "MiniMaxM1ForCausalLM": Family(linear=lightning.minimax_lightning),
    "MiniMaxText01ForCausalLM": Family(linear=lightning.minimax_lightning),
    "NemotronHForCausalLM": NEMOTRON_H,
    "NemotronHPuzzleForCausalLM": NEMOTRON_H,
    "NemotronH_Nano_Omni_Reasoning_V3": NEMOTRON_H,
    "NemotronH_Nano_VL_V2": NEMOTRON_H,
    "NemotronH_Omni_Reasoning_V3": NEMOTRON_H,
    "Qwen3NextForCausalLM": QWEN_HYBRID,
    "Qwen3_5ForCausalLM": QWEN_HYBRID,
    "Qwen3_5ForConditionalGeneration": QWEN_HYBRID,
    "Qwen3_5MoeForCausalLM": QWEN_HYBRID,
    "Qwen3_5MoeForConditionalGeneration": QWEN_HYBRID,
    "ZayaForCausalLM": Family(linear=convolution.zaya_conv),
    # index keys and compression
    "DeepseekV41ForCausalLM": Family(compressed=indexing.deepseek_v4),
    "DeepseekV4ForCausalLM": Family(compressed=indexing.deepseek_v4),
    "MiniMaxM3SparseForCausalLM": SPARSE,
    "MiniMaxM3SparseForConditionalGeneration": SPARSE,
}

# classes that the engine serves under another name
ENGINE_NAMES = {
    "DeepseekV41ForCausalLM": "DeepseekV4ForCausalLM",
    "LongcatCausalLM": "LongcatFlashForCausalLM",
    "LongcatFlashNgramForCausalLM": "LongcatFlashForCausalLM",
}

# classes that the engine lists as multimodal; others are where they nest a text part
MULTIMODAL = frozenset(PLAIN_MULTIMODAL.split()) | {
    "BailingMoeV3VLForConditionalGeneration",
    "DeepseekVL2ForCausalLM",
    "DiffusionGemmaForBlockDiffusion",
    "DotsVLMForCausalLM",
    "Gemma4ForConditionalGeneration",
    "Gemma4UnifiedForConditionalGeneration",
    "Glm5NextForConditionalGeneration",
    "InternS2MobiusForConditionalGeneration",
    "InternS2PreviewForConditionalGeneration",
    "JetVLMForConditionalGeneration",
    "KimiK25ForConditionalGeneration",
    "KimiVLForConditionalGeneration",
    "Lfm2VlForConditionalGeneration",
    "MiniMaxM3SparseForConditionalGeneration",
    "MuseGlimmerForConditionalGeneration",
    "MuseSparkForConditionalGeneration",
    "NemotronH_Nano_Omni_Reasoning_V3",
    "NemotronH_Nano_VL_V2",
    "NemotronH_Omni_Reasoning_V3",
    "PixtralForConditionalGeneration",
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForConditionalGeneration",
    "Step3p7ForConditionalGeneration",
    "UnlimitedOCRForCausalLM",
}

YAML_WAY_OUT = (
    "describe its layers and heads in a YAML file of your own: start from `kvplan presets show`"
)


def family_of(architecture: str, where: str) -> Family:
    """The row of a model class; UnknownArchitecture names the nearest and lists all."""
    family = ARCHITECTURES.get(architecture)
    if family is None:
        stems = {stem(name): name for name in ARCHITECTURES}
        close = nearest(stem(architecture), stems)
        known = f"did you mean '{stems[close]}'? " if close else ""
        raise UnknownArchitecture(
            f"no rules for the model class '{architecture}'",
            where=where,
            hint=f"{known}{YAML_WAY_OUT}; known: {', '.join(sorted(ARCHITECTURES))}",
        )
    return family


def stem(architecture: str) -> str:
    """A class name without the ending that most of them share."""
    return architecture.removesuffix("ForCausalLM").removesuffix("ForConditionalGeneration")
