"""How many draft layers share the target's token budget, and how many of them slide."""

from __future__ import annotations

import msgspec

from kvplan.spec.model import ModelSpec

EAGLE_LIKE = frozenset({"EAGLE", "EAGLE3", "NEXTN", "MTP", "STANDALONE"})
# budgeted like those, though these drafts read the target's KV and own a pool of 64 tokens
PRICED_LIKE_EAGLE = EAGLE_LIKE | {"FROZEN_KV_MTP"}
BLOCK_DRAFTS = frozenset({"DFLASH", "DSPARK"})


class DraftLayers(msgspec.Struct, frozen=True):
    """Layers of the draft's KV; sliding ones live at the sliding pool's length."""

    total: int
    sliding: int = 0
    banded: int = 0  # sliding geometry kept at the full pool's length


class DraftForm(msgspec.Struct, frozen=True):
    """What the engine makes of a full model that it loads as a draft: its MTP head."""

    layers: int | None = None  # None: as many MTP layers as the checkpoint has
    sliding: int | None = None  # None: as many as the model has


ONE_LAYER = DraftForm(layers=1)
DRAFT_FORMS: dict[str, DraftForm] = {
    "DeepseekV4ForCausalLM": DraftForm(layers=1, sliding=0),
    "ExaoneMoEForCausalLM": ONE_LAYER,
    "ExaoneMoeForCausalLM": ONE_LAYER,
    "Glm5NextForConditionalGeneration": ONE_LAYER,
    "HYV3ForCausalLM": ONE_LAYER,
    "HYV4ForCausalLM": ONE_LAYER,
    "InternS2MobiusForConditionalGeneration": ONE_LAYER,
    "InternS2PreviewForConditionalGeneration": ONE_LAYER,
    "MiMoV2FlashForCausalLM": DraftForm(layers=1, sliding=1),
    "MiMoV2ForCausalLM": DraftForm(layers=1, sliding=1),
    "NemotronHForCausalLM": ONE_LAYER,
    "NemotronHPuzzleForCausalLM": ONE_LAYER,
    "NemotronH_Omni_Reasoning_V3": ONE_LAYER,
    "Qwen3MoeForCausalLM": ONE_LAYER,
    "Qwen3NextForCausalLM": ONE_LAYER,
    "Qwen3_5ForCausalLM": ONE_LAYER,
    "Qwen3_5ForConditionalGeneration": ONE_LAYER,
    "Qwen3_5MoeForCausalLM": ONE_LAYER,
    "Qwen3_5MoeForConditionalGeneration": ONE_LAYER,
    "Step3p5ForCausalLM": DraftForm(sliding=1),
    "Step3p7ForConditionalGeneration": DraftForm(sliding=1),
}


def draft_layers(
    target: ModelSpec, draft: ModelSpec | None, algorithm: str | None
) -> DraftLayers | None:
    """Layers that the draft adds to a token; None where the algorithm or the model adds none."""
    if algorithm in BLOCK_DRAFTS:
        return None if draft is None else DraftLayers(total=draft.num_layers)
    if algorithm not in PRICED_LIKE_EAGLE:
        return None
    layers = mtp_head(target) if draft is None else own_checkpoint(draft)
    return layers if layers and layers.total else None


def mtp_head(target: ModelSpec) -> DraftLayers | None:
    """The target's own MTP layers; a target that names no count adds nothing."""
    if target.mtp_layers is None:
        return None
    if target.mtp_sliding_layers is not None:
        return DraftLayers(total=target.mtp_layers, banded=target.mtp_sliding_layers)
    return DraftLayers(total=target.mtp_layers, sliding=sliding_layers(target))


def own_checkpoint(draft: ModelSpec) -> DraftLayers:
    """A draft checkpoint: its MTP layers where it names them, else all of its layers."""
    form = DRAFT_FORMS.get(draft.architecture, DraftForm())
    mtp = form.layers if form.layers is not None else draft.mtp_layers
    total = draft.num_layers * draft.kv_layers_per_layer if mtp is None else mtp
    sliding = sliding_layers(draft) if form.sliding is None else form.sliding
    return DraftLayers(total=total, sliding=sliding)


def sliding_layers(model: ModelSpec) -> int:
    """Layers that slide in a pool of their own; compressed attention counts none."""
    return len(model.sliding.layers) if model.sliding and not model.compressed else 0
