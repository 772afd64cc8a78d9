"""config.json -> preset: the model as YAML text, with what else is known of its weights."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from kvplan.document import Document
from kvplan.sizing.weights import checkpoint_bytes
from kvplan.spec.hf.read import Origin, read_model, whole
from kvplan.spec.hf.weights import served_share
from kvplan.spec.model import ModelSpec, Weights

PLAIN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9]*([._/@+-][A-Za-z0-9]+)*")
# words that YAML readers take for something else
RESERVED = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})


def import_model(
    document: Document,
    origin: Origin,
    *,
    num_params: int | None = None,
    total_bytes: int | None = None,
    weight_bits: int | None = None,
    folder: Path | None = None,
) -> ModelSpec:
    """The model of a config.json; published figures or the folder's weights replace the estimate.

    `weight_bits` is for configs that leave their quantisation out.
    """
    model = read_model(document, origin, weight_bits)
    weights = model.weights
    assert weights is not None
    total = total_bytes
    if total is None and folder is not None:
        total = served_bytes(document, folder, weights)
    if total is not None:
        weights = structs.replace(weights, total_bytes=total, low_bytes=None, high_bytes=None)
    if num_params is not None:
        weights = structs.replace(weights, num_params=num_params)
    return structs.replace(model, weights=weights)


def served_bytes(document: Document, folder: Path, estimate: Weights) -> int | None:
    """Bytes of a folder's weights once they are loaded; None without weights.

    Files far below the estimate are pointers, or a part of what the config needs.
    """
    share = served_share(whole(document))
    stored = checkpoint_bytes(folder, at_least=int((estimate.low_bytes or 0) / 2 / share))
    return None if stored is None else int(stored * share)


def preset_text(spec: msgspec.Struct) -> str:
    """A spec as YAML: one field a line, lists in one line, defaults left out."""
    return "\n".join(lines(spec)) + "\n"


def lines(spec: msgspec.Struct, indent: str = "") -> Iterator[str]:
    """Lines of one struct; nested structs are indented below their name."""
    config = spec.__struct_config__
    if config.tag_field is not None:
        yield f"{indent}{config.tag_field}: {scalar(config.tag)}"
    for field in structs.fields(spec):
        value = getattr(spec, field.name)
        if field.default is not msgspec.NODEFAULT and value == field.default:
            continue
        if isinstance(value, msgspec.Struct):
            yield f"{indent}{field.encode_name}:"
            yield from lines(value, indent + "  ")
        else:
            yield f"{indent}{field.encode_name}: {flow(value)}"


def flow(value: Any) -> str:
    """A scalar, or a list in one line."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(scalar(item) for item in value)}]"
    return scalar(value)


def scalar(value: Any) -> str:
    """A scalar that YAML reads back as it is."""
    if isinstance(value, str):
        plain = PLAIN_TEXT.fullmatch(value) and value.lower() not in RESERVED
        return value if plain else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)
