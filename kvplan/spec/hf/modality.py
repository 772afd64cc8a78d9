"""The text part of a multimodal config, and whether the engine serves more than text."""

from __future__ import annotations

from typing import NamedTuple

from kvplan.spec.hf.classes import TextClass, text_class, wrapper
from kvplan.spec.hf.config import Config
from kvplan.spec.model import Vision

# in the engine's order of preference
NESTED_KEYS = ("thinker_config", "llm_config", "language_config", "text_config")
# classes that read nested text keys as their own
FLATTENED_TYPES = frozenset({"muse_glimmer", "deepseek_v41"})
TEXT_ONLY_BY_DEFAULT = frozenset(
    {
        "Gemma3ForConditionalGeneration",
        "InklingForConditionalGeneration",
        "Llama4ForConditionalGeneration",
        "Step3VLForConditionalGeneration",
    }
)
DEFAULT_TOWER = Vision(num_layers=24, hidden_size=1024)
# classes that are known by their architecture, whatever model_type the config names
TYPES_BY_ARCHITECTURE = dict.fromkeys(
    ("LongcatCausalLM", "LongcatFlashForCausalLM", "LongcatFlashNgramForCausalLM"),
    "longcat_flash",
)


class Parts(NamedTuple):
    """The whole config and its text part, which are the same for a text model."""

    top: Config
    text: Config

    @property
    def nested(self) -> bool:
        return self.text is not self.top


def parts(top: Config, architecture: str) -> Parts:
    """Find the text part and read it through its class."""
    own_type = TYPES_BY_ARCHITECTURE.get(architecture) or top.text("model_type")
    if architecture.startswith("Llava") and architecture.endswith("ForCausalLM"):
        whole = top.as_class(text_class(own_type))
        return Parts(whole, whole)
    nested = nested_text(top)
    if nested is None:
        return flat_parts(top, own_type)
    default_type = wrapper(own_type).text
    found = nested.text("model_type")
    chosen = class_of(found) or class_of(default_type) or TextClass()
    if own_type in FLATTENED_TYPES:
        flat = Config.merged(top, nested, chosen)
        return Parts(flat, flat)
    return Parts(top, nested.as_class(chosen))


def flat_parts(top: Config, own_type: str | None) -> Parts:
    """Text keys at the top; some multimodal classes still make a text part of them."""
    default_type = wrapper(own_type).text
    if default_type is None or own_type in FLATTENED_TYPES:
        whole = top.as_class(text_class(own_type))
        return Parts(whole, whole)
    return Parts(top, top.as_class(text_class(default_type)))


def class_of(model_type: str | None) -> TextClass | None:
    """The class of a model type, None where the table has none."""
    found = text_class(model_type)
    return found if found.defaults else None


def nested_text(top: Config) -> Config | None:
    """The nested text config; an omni model's thinker nests once more."""
    for key in NESTED_KEYS:
        inner = top.inner(key)
        if inner is None:
            continue
        return (inner.inner("text_config") or inner) if key == "thinker_config" else inner
    return None


def is_multimodal(found: Parts, architecture: str, *, listed: bool) -> bool:
    """Whether the engine serves images, audio or video too, and reserves memory for them."""
    if architecture in TEXT_ONLY_BY_DEFAULT or found.top.flag("language_model_only"):
        return False
    if architecture == "MiMoV2ForCausalLM":
        return found.top.has("vision_config") and found.top.has("audio_config")
    if architecture.startswith("DeepseekV4"):
        return found.top.has("vision_config") or bool(found.top.whole("vision_n_layers"))
    return listed or found.nested


def vision(top: Config) -> Vision | None:
    """The vision tower's size as the engine sees it, class defaults included."""
    row = wrapper(top.text("model_type"))
    tower = top.inner("vision_config")
    if tower is None and not row.vision_by_default:
        return None
    if row.vision_stays_raw:
        return DEFAULT_TOWER
    return Vision(
        num_layers=tower_size(tower, row.vision, "num_hidden_layers", DEFAULT_TOWER.num_layers),
        hidden_size=tower_size(tower, row.vision, "hidden_size", DEFAULT_TOWER.hidden_size),
    )


def tower_size(tower: Config | None, defaults: object, key: str, otherwise: int) -> int:
    """A size from the config, else from the class, else the engine's guess."""
    named = tower.whole(key) if tower else None
    if named is not None:
        return named
    known = defaults.get(key) if isinstance(defaults, dict) else None
    return known if known is not None else otherwise
