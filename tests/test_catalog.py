"""Names, paths and HF ids that stand for a preset, and the refusals of those that do not."""

from __future__ import annotations

import contextlib
import json
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan import catalog
from kvplan.errors import InputError, KvplanError
from kvplan.spec.server import server_args


@pytest.mark.parametrize("kind", list(catalog.FOLDERS))
def test_every_shipped_preset_is_valid_and_named_as_its_file(kind):
    for name in catalog.names(kind):
        spec = catalog.load_preset(kind, name, catalog.TYPES[kind])
        assert kind != "model" or spec.name == name


def test_shipped_presets_cover_models_and_cards():
    assert len(catalog.names("model")) >= 60
    assert len(catalog.names("gpu")) >= 15
    assert {"t4", "h100", "b200", "gb200", "mi300x", "mi355x"} <= set(catalog.names("gpu"))


@pytest.mark.parametrize("kind", ["parallel", "speculative"])
def test_launch_presets_are_server_arguments(kind):
    load = {"parallel": catalog.load_parallel, "speculative": catalog.load_speculative}[kind]
    for name in catalog.names(kind):
        values = load(name)
        draft = values.pop("draft", None)

        assert server_args(values)
        assert draft is None or catalog.load_model(draft)


@pytest.mark.parametrize(
    "name",
    [
        "llama-3.1-8b",
        "Llama-3.1-8B",
        "meta-llama/Meta-Llama-3.1-8B",
        "meta-llama/Llama-3.1-8B-Instruct",
        "META-LLAMA/llama-3.1-8b",
    ],
)
def test_a_model_has_a_preset_name_and_hf_ids(name):
    assert catalog.load_model(name).name == "llama-3.1-8b"


@pytest.mark.parametrize(
    ("name", "problem", "hint"),
    [
        ("lama-3.1-8b", "unknown model 'lama-3.1-8b'", "did you mean 'llama-3.1-8b'?"),
        ("zzz", "unknown model 'zzz'", "`kvplan presets list`"),
        ("../models/llama-3.1-8b", "no shipped model has the HF id", "config.json"),
        (
            "Qwen/Qwen3-8",
            "no shipped model has the HF id 'Qwen/Qwen3-8'",
            "did you mean 'Qwen/Qwen3-8B'?",
        ),
        ("absent.yaml", "cannot read: no such file or directory", ""),
        ("absent/config.json", "cannot read: no such file or directory", ""),
        ("a\0b", "unknown model", ""),
        ("x" * 5000, "unknown model", ""),
        ("", "unknown model ''", ""),
    ],
)
def test_unknown_models_are_refused_with_the_nearest(name, problem, hint):
    with pytest.raises(InputError) as refusal:
        catalog.load_model(name)

    assert problem in str(refusal.value)
    assert hint in (refusal.value.hint or "")


def test_unknown_cards_are_refused_with_the_nearest():
    with pytest.raises(InputError) as refusal:
        catalog.load_gpu("h101")

    assert (refusal.value.problem, refusal.value.hint) == (
        "unknown gpu 'h101'",
        "did you mean 'h100'?",
    )


def test_own_yaml_files_are_read_like_shipped_ones(tmp_path):
    mine = tmp_path / "mine.yaml"
    shutil.copy(catalog.presets_root() / "models" / "gpt-oss-20b.yaml", mine)

    assert catalog.load_model(str(mine)) == catalog.load_model("gpt-oss-20b")


CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "torch_dtype": "float32",
    "vocab_size": 1000,
}


def test_a_folder_is_read_by_its_config_and_its_weights(tmp_path):
    folder = tmp_path / "My-Model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))

    assert catalog.load_model(str(folder)).name == "My-Model"
    estimated = catalog.load_model(str(folder / "config.json")).weights
    assert estimated is not None
    assert estimated.estimated

    (folder / "model.safetensors.index.json").write_text('{"metadata": {"total_size": 4000000}}')
    weights = catalog.load_model(str(folder)).weights

    assert weights is not None
    assert not weights.estimated
    assert weights.total_bytes == 2000000  # served in half precision


def test_a_folder_without_a_config_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"no config\.json in this folder"):
        catalog.load_model(str(tmp_path))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("num_layers: 0", "'num_layers' must be an integer >= 1, got 0"),
        ("num_layers: 5000", "'num_layers' must be an integer <= 4096, got 5000"),
        ("context_length: 1e6", "1e6"),
        ("head_dims: 64", "unknown field 'head_dims'"),
        (
            "sliding: {window: 128, layers: [31, 32], num_kv_heads: 8, head_dim: 64, v_head_dim: 64}",
            "'sliding.layers' names layer 32 of 32 layers",
        ),
        (
            "sliding: {window: 128, layers: [1, 1], num_kv_heads: 8, head_dim: 64, v_head_dim: 64}",
            "'sliding.layers' names a layer twice",
        ),
        ("indexer: {head_dim: 128}", "'indexer' needs attention of kind mla"),
    ],
)
def test_own_models_are_checked_field_by_field(tmp_path, change, problem):
    text = (catalog.presets_root() / "models" / "llama-3.1-8b.yaml").read_text()
    key = change.split(":")[0]
    kept = [line for line in text.splitlines() if not line.startswith(f"{key}:")]
    mine = tmp_path / "mine.yaml"
    mine.write_text("\n".join([*kept, change]) + "\n")

    with pytest.raises(InputError) as refusal:
        catalog.load_model(str(mine))

    assert problem in refusal.value.problem
    assert str(mine) in (refusal.value.where or "")


@given(st.text(max_size=40))
def test_any_name_is_answered_or_refused(name):
    for load in (catalog.load_model, catalog.load_gpu, catalog.load_parallel):
        with contextlib.suppress(KvplanError):
            load(name)
