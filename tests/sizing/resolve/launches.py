"""Small models, cards and drafting that the rules are tried on."""

from __future__ import annotations

from typing import Any

from kvplan.spec.gpu import GpuSpec
from kvplan.spec.model import Compressed, Indexer, Mha, Mla, ModelSpec, Vision
from kvplan.spec.state import KdaState, LinearState, Mamba2State

T4 = GpuSpec(name="T4", memory_mib=15360, sm=75)
A100 = GpuSpec(name="A100", memory_mib=81920, sm=80)
L40S = GpuSpec(name="L40S", memory_mib=46068, sm=89)
H100 = GpuSpec(name="H100", memory_mib=81559, sm=90)
B200 = GpuSpec(name="B200", memory_mib=183359, sm=100)
B300 = GpuSpec(name="B300", memory_mib=275040, sm=103)
RTX_5090 = GpuSpec(name="RTX 5090", memory_mib=32607, sm=120)
MI300X = GpuSpec(name="MI300X", memory_mib=196592)

EAGLE = {
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}


def dense(architecture: str = "LlamaForCausalLM", **fields: Any) -> ModelSpec:
    """A grouped-query model of the given class."""
    spec: dict[str, Any] = {
        "name": "dense",
        "architecture": architecture,
        "dtype": "bfloat16",
        "context_length": 131072,
        "num_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "attention": Mha(num_kv_heads=8, head_dim=128, v_head_dim=128),
    }
    return ModelSpec(**{**spec, **fields})


def latent(architecture: str = "DeepseekV3ForCausalLM", **fields: Any) -> ModelSpec:
    """A latent-attention model."""
    return dense(
        architecture, **{"attention": Mla(kv_lora_rank=512, qk_rope_head_dim=64), **fields}
    )


def sparse_latent(architecture: str = "DeepseekV32ForCausalLM", **fields: Any) -> ModelSpec:
    """A latent-attention model with an indexer."""
    return latent(architecture, **{"indexer": Indexer(head_dim=128), **fields})


def compressed() -> ModelSpec:
    """DeepSeek-V4 in small."""
    return dense(
        "DeepseekV4ForCausalLM",
        num_layers=4,
        compressed=Compressed(
            ratios=(0, 4, 128, 4),
            window=128,
            qk_nope_head_dim=448,
            qk_rope_head_dim=64,
            index_head_dim=128,
        ),
    )


def hybrid(architecture: str = "Qwen3NextForCausalLM", **fields: Any) -> ModelSpec:
    """A model with recurrent state in three of four layers."""
    state = Mamba2State(
        intermediate_size=4096,
        num_groups=16,
        num_heads=32,
        head_dim=128,
        state_size=128,
        conv_kernel=4,
    )
    return dense(
        architecture,
        num_layers=4,
        linear=LinearState(layers=(0, 1, 2), full_attention_layers=(3,), state=state),
        **fields,
    )


def kimi(architecture: str = "KimiLinearForCausalLM") -> ModelSpec:
    """A latent-attention hybrid with Kimi delta attention."""
    state = KdaState(num_heads=32, head_dim=128, num_k_heads=32, head_k_dim=128, conv_kernel=4)
    return latent(
        architecture,
        num_layers=4,
        linear=LinearState(layers=(0, 1, 2), full_attention_layers=(3,), state=state),
    )


def vision(architecture: str = "Qwen2_5_VLForConditionalGeneration", **fields: Any) -> ModelSpec:
    """A model that is served with images."""
    tower = {"multimodal": True, "vision": Vision(num_layers=24, hidden_size=1024)}
    return dense(architecture, **{**tower, **fields})
