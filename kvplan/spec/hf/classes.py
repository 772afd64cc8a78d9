"""Defaults and key aliases of the configuration classes, by model_type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple


class TextClass(NamedTuple):
    """What a configuration class says for keys that a config.json leaves out."""

    defaults: Mapping[str, Any] = {}
    aliases: Mapping[str, str] = {}  # common name -> the class's own


class Wrapper(NamedTuple):
    """A multimodal class: the class of its text part and the size of its vision tower."""

    text: str | None = None
    vision: Mapping[str, int] = {}
    vision_by_default: bool = False  # the class makes a tower where the config names none
    vision_stays_raw: bool = False  # the engine cannot see the tower's size


def text_class(model_type: str | None) -> TextClass:
    """The class of a text model; empty for model types that ship their own code."""
    row = tables()["text"].get(model_type)
    if row is None:
        return TextClass()
    defaults = {**row, "model_type": model_type}
    return TextClass(defaults=defaults, aliases=defaults.pop("aliases", {}))


def wrapper(model_type: str | None) -> Wrapper:
    """The class of a multimodal model; empty for text models and own code."""
    return Wrapper(**tables()["wrappers"].get(model_type, {}))


@cache
def tables() -> dict[str, Any]:
    """The shipped table, read once."""
    text = files("kvplan").joinpath("data", "hf_classes.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded
