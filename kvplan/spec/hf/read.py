"""config.json -> ModelSpec, with the family's row of the architecture table."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import structs, to_builtins

from kvplan.document import Document
from kvplan.errors import InputError
from kvplan.spec.hf.architectures import ENGINE_NAMES, MULTIMODAL, Family, family_of
from kvplan.spec.hf.config import Config
from kvplan.spec.hf.context import context_length, dtype, dtype_name
from kvplan.spec.hf.extras import attention_sinks, banded_mtp_layers, block_size
from kvplan.spec.hf.modality import Parts, is_multimodal, parts, vision
from kvplan.spec.hf.quantization import kv_cache_dtype, quantization, quantization_config
from kvplan.spec.hf.sliding import read_sliding
from kvplan.spec.hf.weights import estimate_weights
from kvplan.spec.model import Confidence, Mha, Mla, ModelSpec


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a config came from."""

    name: str
    hf_id: str | None = None
    aliases: tuple[str, ...] = ()
    source: str | None = None
    confidence: Confidence = "own-config"


def model_from_config(config: dict[str, Any], origin: Origin) -> ModelSpec:
    """A config that is already in memory, with dotted keys as places."""

    def locate(path: tuple[str | int, ...], _key: bool) -> str:
        return f"config.json: {'.'.join(map(str, path))}" if path else "config.json"

    return read_model(Document(config, "config.json", locate), origin)


def read_model(document: Document, origin: Origin, weight_bits: int | None = None) -> ModelSpec:
    """The model that a config.json describes, as the engine reads it.

    `weight_bits` stands in for a quantisation that the config leaves out.
    """
    found = whole(document)
    architecture = architecture_of(found.top)
    family = family_of(architecture, found.top.where("architectures"))
    try:
        model = read_parts(found, architecture, family, origin)
    except ValueError as error:
        raise InputError(str(error), where=document.where()) from None
    weights = estimate_weights(found, model, weight_bits)
    return checked(structs.replace(model, weights=weights), document)


def whole(document: Document) -> Parts:
    """A config.json and its text part, each read through its class."""
    if not isinstance(document.data, dict):
        raise InputError("a config.json is a mapping of keys", where=document.where())
    top = Config(document, document.data)
    return parts(top, architecture_of(top))


def checked(model: ModelSpec, document: Document) -> ModelSpec:
    """The same model, refused where a figure is out of the bounds that a preset has too."""
    plain = Document(to_builtins(model), document.file, lambda _path, _key: document.where())
    return plain.convert(ModelSpec)


def architecture_of(top: Config) -> str:
    """The first of `architectures`."""
    named = top.names("architectures")
    if not named:
        raise InputError(
            "'architectures' is missing",
            where=top.where(),
            hint="a config.json names its model class there",
        )
    return named[0]


def read_parts(found: Parts, architecture: str, family: Family, origin: Origin) -> ModelSpec:
    """Every field of the spec from the text part, and what surrounds it from the top."""
    text = found.text
    attention = family.attention(text)
    linear = family.linear(text) if family.linear else None
    sliding = None
    if family.sliding is not None and isinstance(attention, Mha):
        sliding = read_sliding(text, family.sliding, attention)
    section = quantization_config(found.top, text)
    multimodal = is_multimodal(found, architecture, listed=architecture in MULTIMODAL)
    return ModelSpec(
        name=origin.name,
        architecture=ENGINE_NAMES.get(architecture, architecture),
        hf_id=origin.hf_id,
        aliases=origin.aliases,
        source=origin.source,
        confidence=origin.confidence,
        dtype=dtype(text, inherited=dtype_name(found.top)),
        context_length=context_length(text),
        num_layers=family.num_layers(text),
        kv_layers_per_layer=kv_layers_per_layer(text, family),
        hidden_size=text.count("hidden_size"),
        num_attention_heads=text.count("num_attention_heads"),
        attention=attention,
        indexer=family.indexer(text) if family.indexer and isinstance(attention, Mla) else None,
        sliding=sliding,
        linear=linear,
        compressed=family.compressed(text) if family.compressed else None,
        sparse=family.sparse(text) if family.sparse else None,
        mtp_layers=text.whole("num_nextn_predict_layers"),
        mtp_sliding_layers=banded_mtp_layers(text),
        quantization=quantization(section),
        kv_cache_dtype=kv_cache_dtype(section),
        attention_sinks=attention_sinks(architecture, text),
        block_size=block_size(architecture, found.top),
        multimodal=multimodal,
        vision=vision(found.top),
    )


def kv_layers_per_layer(text: Config, family: Family) -> int:
    """How often the engine allocates a layer's KV: loops, or two attentions in a layer."""
    named = text.whole(family.kv_layers_key) if family.kv_layers_key else None
    times = family.kv_layers_default if named is None else max(1, named)
    return times**2 if family.kv_layers_squared else times
