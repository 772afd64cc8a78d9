"""The shapes of K and V: heads and dims, or the latent of MLA."""

from __future__ import annotations

from kvplan.spec.hf.config import Config
from kvplan.spec.model import Mha, Mla

# in the engine's order: Falcon, Falcon (new), most models, ChatGLM, Step-3
KV_HEAD_KEYS = (
    "n_head_kv",
    "num_kv_heads",
    "num_key_value_heads",
    "multi_query_group_num",
    "num_attention_groups",
)
FALCON_TYPES = frozenset({"falcon", "RefinedWeb", "RefinedWebModel"})


def heads(config: Config) -> Mha:
    """Grouped-query attention; dims that the config leaves out follow from the hidden size."""
    head_dim = config.whole("head_dim")
    if head_dim is None:
        head_dim = config.count("hidden_size") // config.count("num_attention_heads")
    return Mha(
        num_kv_heads=kv_heads(config),
        head_dim=head_dim,
        v_head_dim=config.whole("v_head_dim") or head_dim,
    )


def kv_heads(config: Config) -> int:
    """KV heads of the whole model, under whichever name the config has them."""
    model_type = config.text("model_type")
    grouped_falcon = model_type in FALCON_TYPES and config.flag("new_decoder_architecture")
    if not grouped_falcon and config.flag("multi_query"):
        return 1
    if model_type in ("mpt", "dbrx") and (inner := config.inner("attn_config")):
        named = inner.whole("kv_n_heads")
        if named is not None:
            return named
    for key in KV_HEAD_KEYS:
        named = config.whole(key)
        if named is not None:
            return named
    return config.count("num_attention_heads")


def nas_heads(config: Config) -> Mha:
    """Nemotron-NAS: heads in a group instead of KV heads, one figure for all blocks."""
    head_dim = config.count("hidden_size") // config.count("num_attention_heads")
    groups = {
        block["attention"]["n_heads_in_group"]
        for block in config.items("block_configs") or ()
        if isinstance(block, dict)
        and isinstance(block.get("attention"), dict)
        and isinstance(block["attention"].get("n_heads_in_group"), int)
        and not block["attention"].get("no_op")
    }
    if len(groups) != 1 or min(groups) < 1:
        raise config.refuse(
            "block_configs", "must give all attention blocks the same 'n_heads_in_group'"
        )
    return Mha(
        num_kv_heads=config.count("num_attention_heads") // groups.pop(),
        head_dim=config.whole("head_dim") or head_dim,
        v_head_dim=config.whole("head_dim") or head_dim,
    )


def latent(config: Config) -> Mla:
    """MLA: one latent a token, whatever head counts the config has beside it."""
    return Mla(
        kv_lora_rank=config.count("kv_lora_rank"),
        qk_rope_head_dim=config.whole("qk_rope_head_dim") or 0,
    )


def latent_without_rope(config: Config) -> Mla:
    """MLA whose rope half may be switched off (Ling 3.0)."""
    attention = latent(config)
    if config.flag("use_mla_nope"):
        return Mla(kv_lora_rank=attention.kv_lora_rank, qk_rope_head_dim=0)
    return attention


def latent_if_ranked(config: Config) -> Mha | Mla:
    """MLA where the config names a latent rank, heads elsewhere."""
    return latent(config) if config.has("kv_lora_rank") else heads(config)


def latent_unless_refused(config: Config) -> Mha | Mla:
    """MLA unless the config says use_mla: false (DeepSeek-VL2)."""
    uses_mla = config.get("use_mla")
    return heads(config) if uses_mla is False else latent(config)


def gemma4_heads(config: Config) -> Mha:
    """Gemma-4 names the sliding layers' heads; the full layers' override them."""
    shared = heads(config)
    grouped = config.flag("attention_k_eq_v") and config.has("num_global_key_value_heads")
    head_dim = config.whole("global_head_dim") or 512
    return Mha(
        num_kv_heads=config.count("num_global_key_value_heads") if grouped else shared.num_kv_heads,
        head_dim=head_dim,
        v_head_dim=config.whole("v_head_dim") or head_dim,
    )
