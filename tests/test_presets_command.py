"""`kvplan presets` through the real entry point."""

from __future__ import annotations

import json
import shutil

from kvplan import catalog

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "num_hidden_layers": 8,
    "max_position_embeddings": 8192,
    "vocab_size": 32000,
    "torch_dtype": "bfloat16",
}


def test_list_shows_every_preset_with_what_it_is(kvplan):
    code, out, err = kvplan("presets", "list")

    assert (code, err) == (0, "")
    assert "80 layers · GQA 8 × 128" in " ".join(out.split())
    assert all(name in out for name in catalog.names("gpu"))


def test_list_as_json_has_the_figures(kvplan):
    code, out, _ = kvplan("presets", "list", "--kind", "models", "--json")
    report = json.loads(out)
    rows = {row["name"]: row for row in report["presets"]}

    assert code == 0
    assert report["schema"] == "kvplan.presets/1"
    assert rows["llama-3.1-8b"]["num_params"] == 8030261248
    assert rows["deepseek-v3.2"]["summary"] == "61 layers · MLA 512 + 64 · index keys · 1 MTP"
    assert rows["gpt-oss-20b"]["summary"] == "24 layers · GQA 8 × 64 · 12 sliding (127)"


def test_show_prints_the_file_as_it_is(kvplan):
    examples: list[tuple[catalog.Kind, str]] = [
        ("model", "kimi-k3"),
        ("gpu", "h100"),
        ("parallel", "tp8-dp8"),
    ]
    for kind, name in examples:
        code, out, _ = kvplan("presets", "show", name)
        path = catalog.preset_file(kind, name)

        assert code == 0
        assert path is not None
        assert out == path.read_text()


def test_show_takes_hf_ids_paths_and_configs(kvplan, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    _, by_id, _ = kvplan("presets", "show", "Qwen/Qwen3-8B", "--json")
    _, by_config, _ = kvplan("presets", "show", tmp_path)

    assert json.loads(by_id)["preset"]["name"] == "qwen3-8b"
    assert "num_kv_heads: 4" in by_config


def test_import_writes_a_preset_that_validates_and_plans(kvplan, tmp_path):
    config, preset = tmp_path / "config.json", tmp_path / "mine.yaml"
    config.write_text(json.dumps(CONFIG))
    code, out, _ = kvplan(
        "presets", "import", config, "--name", "mine", "--hf-id", "me/mine", "--output", preset
    )

    assert (code, out) == (0, "")
    assert kvplan("presets", "validate", preset)[:2] == (0, f"{preset}: valid model\n")
    assert catalog.load_model(str(preset)).hf_id == "me/mine"


def test_import_keeps_published_figures(kvplan, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))
    _, out, _ = kvplan("presets", "import", config, "--params", 7, "--total-bytes", 14)
    _, half, _ = kvplan("presets", "import", config, "--weight-bits", 8)

    assert "  num_params: 7\n  total_bytes: 14\n" in out
    assert "low_bytes" not in out
    assert "low_bytes" in half


def test_import_refuses_unknown_classes_with_the_line(kvplan, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**CONFIG, "architectures": ["NobodyForCausalLM"]}, indent=1))
    code, out, err = kvplan("presets", "import", config)

    assert (code, out) == (2, "")
    assert err.startswith(f"error: {config}:2:")
    assert "no rules for the model class 'NobodyForCausalLM'" in err
    assert "LlamaForCausalLM" in err


def test_validate_without_files_checks_the_shipped_ones(kvplan):
    code, out, _ = kvplan("presets", "validate")

    assert code == 0
    assert len(out.splitlines()) == sum(len(catalog.names(kind)) for kind in catalog.FOLDERS)


def test_validate_names_every_broken_file(kvplan, tmp_path):
    good, bad, odd = tmp_path / "good.yaml", tmp_path / "bad.yaml", tmp_path / "odd.yaml"
    shutil.copy(catalog.presets_root() / "gpus" / "h100.yaml", good)
    bad.write_text("tp_size: 8\npp_sizes: 2\n")
    odd.write_text("color: blue\n")
    code, out, _ = kvplan("presets", "validate", good, bad, odd)

    assert code == 2
    assert out.splitlines() == [
        f"{good}: valid gpu",
        f"{bad}:2:1: unknown field 'pp_sizes' (did you mean 'pp_size'?)",
        f"{odd}: the fields do not tell what kind of preset this is (it has none of"
        " architecture, memory_mib, speculative_algorithm, tp_size; or give --kind)",
    ]


def test_unknown_kinds_and_names_are_refused(kvplan):
    code, _, err = kvplan("presets", "list", "--kind", "modell")
    assert code == 2
    assert "did you mean 'model'?" in err

    code, _, err = kvplan("presets", "show", "h101", "--kind", "gpu")
    assert code == 2
    assert "did you mean 'h100'?" in err


def test_pointers_to_weights_leave_the_estimate(kvplan, tmp_path):
    """A clone without its large files holds pointers of a hundred bytes under the weights' names."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    _, estimated, _ = kvplan("presets", "import", tmp_path)
    (tmp_path / "model-00001-of-00002.safetensors").write_text("version https://git-lfs\n")
    code, pointers, _ = kvplan("presets", "import", tmp_path)

    assert code == 0
    assert "high_bytes" in estimated
    assert pointers == estimated


def test_an_import_is_also_json(kvplan, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))
    code, out, _ = kvplan("presets", "import", config, "--json")

    report = json.loads(out)
    assert code == 0
    assert (report["schema"], report["kind"]) == ("kvplan.presets/1", "model")
    assert report["preset"]["num_layers"] == 8


def test_a_published_figure_beyond_any_model_is_refused(kvplan, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))
    for flag in ("--params", "--total-bytes"):
        code, _, err = kvplan("presets", "import", config, flag, str(10**23))

        assert code == 2
        assert flag in err
