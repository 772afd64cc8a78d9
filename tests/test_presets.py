"""Shipped models are what their configs say, and are written as they are read."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from kvplan import catalog, yamlfile
from kvplan.presets_import import import_model, preset_text
from kvplan.shipped import COMPILED, compiled
from kvplan.spec.hf.read import Origin
from kvplan.spec.model import ModelSpec
from kvplan.yamlfile import load_json

# copies that lack their quantisation; the bits are those that the publishers name
WEIGHT_BITS = {
    "glm-4.7-fp8": 8,
    "kimi-k2-thinking": 4,
    "kimi-k2.5": 4,
    "kimi-k3": 4,
    "laguna-s-2.1-fp8": 8,
    "ling-2.6-1t": 8,
    "mimo-v2.5-pro": 8,
    "nemotron-3-super-120b-a12b-fp8": 8,
}


@pytest.mark.parametrize("name", catalog.names("model"))
def test_importing_the_config_gives_the_shipped_preset(name, shared, tmp_path):
    fact = json.loads((shared / "facts" / "models" / f"{name}.json").read_text())
    config = tmp_path / "config.json"
    config.write_text(json.dumps(fact["config"]))
    shipped = catalog.load_model(name)
    origin = Origin(
        name=name,
        hf_id=hf_id(fact),
        aliases=shipped.aliases,
        source=fact["source"],
        confidence=fact["confidence"],
    )

    imported = import_model(
        load_json(config),
        origin,
        num_params=fact["params_total"],
        total_bytes=published_bytes(fact),
        weight_bits=WEIGHT_BITS.get(name),
    )

    assert imported == shipped
    path = catalog.preset_file("model", name)
    assert path is not None
    assert preset_text(imported) == path.read_text()


def hf_id(fact: dict[str, Any]) -> str | None:
    """The id alone: some facts add words in brackets, drafts have none."""
    first = fact["hf_id"].split(" ")[0]
    return first if re.fullmatch(r"[\w.-]+/[\w.-]+", first) else None


def published_bytes(fact: dict[str, Any]) -> int | None:
    """Published bytes as they are served: float32 is halved."""
    totals: dict[str, int] = fact["weight_bytes"] or {}
    served = [total // 2 if dtype == "fp32" else total for dtype, total in totals.items()]
    return served[0] if served else None


def test_every_config_of_the_facts_is_shipped(shared):
    facts = {path.stem for path in (shared / "facts" / "models").glob("*.json")}

    assert facts == set(catalog.names("model"))


@pytest.mark.parametrize("kind", list(catalog.FOLDERS))
def test_presets_are_small_files(kind):
    assert all(path.stat().st_size < 3000 for path in catalog.preset_files(kind))


@pytest.mark.parametrize("name", catalog.names("model"))
def test_written_presets_read_back(name):
    model = catalog.load_model(name)

    assert yamlfile.parse(preset_text(model), "preset").convert(ModelSpec) == model


def test_odd_texts_are_quoted():
    model = catalog.load_model("llama-2-7b")
    odd = ["yes", "012", "1e9", "a: b", "#x", "null", "é", 'say "so"', "~", "on", "-", "1.5"]
    for text in odd:
        changed = ModelSpec(
            **{field: getattr(model, field) for field in model.__struct_fields__}
            | {"name": text, "aliases": tuple(odd)}
        )

        assert yamlfile.parse(preset_text(changed), "preset").convert(ModelSpec) == changed


def test_the_compiled_presets_are_those_of_the_yaml_files():
    assert COMPILED.read_bytes() == compiled(), "run `python -m kvplan.shipped`"
