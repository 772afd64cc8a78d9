"""What speculation and the attention backends need of a config beside its shapes."""

from __future__ import annotations

from kvplan.spec.hf.config import Config

SINK_CLASSES = frozenset(
    {
        "GptOssForCausalLM",
        "GraniteMoeSWAForCausalLM",
        "GraniteSWAForCausalLM",
        "IQuestQ1ForCausalLM",
    }
)
SINK_FLAGS = {
    "MiMoV2FlashForCausalLM": ("add_swa_attention_sink_bias", "add_full_attention_sink_bias"),
    "MiMoV2ForCausalLM": ("add_swa_attention_sink_bias", "add_full_attention_sink_bias"),
}


def attention_sinks(architecture: str, text: Config) -> bool:
    """Whether the softmax has learned sinks: always for some classes, by a flag for others."""
    if architecture in SINK_CLASSES:
        return True
    return any(text.flag(key) for key in SINK_FLAGS.get(architecture, ("learnable_sink",)))


def block_size(architecture: str, top: Config) -> int | None:
    """Tokens that a DFLASH or DSpark draft, or the one bundled in a target, proposes at once."""
    if top.has("dspark_block_size"):
        return top.count("dspark_block_size")
    if (
        "Draft" not in architecture
        and "DSpark" not in architecture
        and "DFlash" not in architecture
    ):
        return None
    inner = top.inner("dflash_config")
    if inner and inner.has("block_size"):
        return inner.count("block_size")
    return top.whole("block_size")


def banded_mtp_layers(text: Config) -> int | None:
    """MTP layers that slide at the full pool's length; None where no list names any."""
    banded = text.numbers("mtp_local_layer_ids")
    return None if banded is None else len(banded)
