"""The JSON Schemas take what the readers take, and every YAML file of the repository fits its own."""

from __future__ import annotations

import copy
import json
import random
import re
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from kvplan import yamlfile
from kvplan.document import Document
from kvplan.errors import InputError
from kvplan.schemas import DIALECT, KINDS, loaded, schema
from tests.conftest import REPOSITORY

FOLDERS: dict[str, tuple[str, ...]] = {
    "model": ("presets/models", "presets/drafts"),
    "gpu": ("presets/gpus",),
    "parallel": ("presets/parallel",),
    "speculative": ("presets/speculative",),
    "budget": ("presets/budgets", "tests/data/budgets", "docs/examples/budgets"),
    "workload": ("presets/workloads",),
}
VALUES = [None, True, 0, -1, 1, 2.5, 10**15, "", "text", [], [1], ["x"], {}, {"a": 1}]


def files() -> list[tuple[str, Path]]:
    """Every YAML file of the repository's own kinds."""
    found = [
        (kind, path)
        for kind, folders in FOLDERS.items()
        for folder in folders
        for path in sorted((REPOSITORY / folder).glob("*.y*ml"))
    ]
    found += [("sweep", path) for path in sorted((REPOSITORY / "tests/data/sweeps").glob("*.yaml"))]
    synthetic = sorted((REPOSITORY / "tests/data/workloads").glob("synthetic*.yaml"))
    return found + [("workload", path) for path in synthetic]


def validator(kind: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema(kind))


def reads(kind: str, data) -> bool:
    """Whether a reader of the kind takes the value."""
    for type_name in KINDS[kind].types:
        try:
            Document(data, "x", lambda _path, _key: "x").convert(loaded(type_name))
        except InputError:
            continue
        return True
    return False


@pytest.mark.parametrize("kind", KINDS)
def test_every_schema_is_one(kind):
    made = schema(kind)

    jsonschema.Draft202012Validator.check_schema(made)
    assert made["$schema"] == DIALECT
    assert made["description"]
    assert all(name.isidentifier() and len(name) < 30 for name in made["$defs"])


def test_every_yaml_file_fits_its_schema():
    validators = {kind: validator(kind) for kind in KINDS}
    checked = 0
    for kind, path in files():
        validators[kind].validate(yamlfile.load(path).data)
        checked += 1

    assert checked >= 200
    assert {kind for kind, _ in files()} >= {
        "model",
        "gpu",
        "parallel",
        "speculative",
        "budget",
        "workload",
        "sweep",
    }


def test_no_yaml_file_is_left_without_a_schema():
    known = {path for _, path in files()}
    shipped = set((REPOSITORY / "presets").rglob("*.y*ml"))

    assert shipped <= known


def test_a_lock_file_fits_its_schema(kvplan, tmp_path):
    lock = tmp_path / "kvplan.lock.json"
    kvplan("check", REPOSITORY / "presets/budgets", "--lock", lock, "--update")

    validator("lock").validate(json.loads(lock.read_text()))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("model", "models/llama-3.1-8b"),
        ("model", "models/deepseek-v4-flash"),
        ("model", "models/qwen3-next-80b-a3b"),
        ("gpu", "gpus/h100"),
        ("parallel", "parallel/tp8-dp8"),
        ("speculative", "speculative/eagle3-llama-3.1-8b"),
        ("budget", "budgets/gpt-oss-120b-2xh100"),
        ("plan", "budgets/gpt-oss-120b-2xh100"),
    ],
)
def test_what_a_reader_refuses_the_schema_refuses_and_the_other_way_round(kind, name):
    original = yamlfile.load(REPOSITORY / f"presets/{name}.yaml").data
    if kind == "plan":
        original = {field: original[field] for field in ("model", "gpu", "parallel", "server")}
    check, chance = validator(kind), random.Random(name)
    disagreements = []
    for _ in range(400):
        data = changed(copy.deepcopy(original), chance)
        if check.is_valid(data) != reads(kind, data) and not between_fields(kind, data):
            disagreements.append(data)

    assert not disagreements


def changed(data, chance: random.Random):
    """The data with one value replaced, removed or added somewhere."""
    place = data
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            break
        key = chance.choice(keys)
        if isinstance(place[key], dict | list) and place[key] and chance.random() < 0.7:
            place = place[key]
            continue
        action = chance.randrange(3)
        if action == 0:
            place[key] = chance.choice(VALUES)
        elif action == 1:
            del place[key]
        elif isinstance(place, dict):
            place[chance.choice(["extra", "note", "head_dim", "sm", "requests"])] = chance.choice(
                VALUES
            )
        break
    return data


def between_fields(kind: str, data) -> bool:
    """Rules over several fields of a model, which no schema states."""
    if kind != "model" or not validator(kind).is_valid(data):
        return False
    with pytest.raises(InputError) as refusal:
        Document(data, "x", lambda _path, _key: "x").convert(loaded(KINDS[kind].types[0]))
    return "'" in refusal.value.problem and " must be " not in refusal.value.problem


def test_the_command_prints_the_schema(kvplan, tmp_path):
    code, out, _ = kvplan("schema", "budget")
    path = tmp_path / "budget.schema.json"

    assert code == 0
    assert json.loads(out) == json.loads(json.dumps(schema("budget")))
    assert kvplan("schema", "budget", "--output", path)[:2] == (0, "")
    assert path.read_text() == out


def test_without_a_name_the_kinds_are_listed(kvplan):
    assert [line.split()[0] for line in kvplan("schema")[1].splitlines()] == list(KINDS)
    assert list(json.loads(kvplan("schema", "--json")[1])) == sorted(KINDS)


def test_an_unknown_kind_is_refused_with_the_nearest(kvplan):
    code, out, err = kvplan("schema", "budgets")

    assert (code, out) == (2, "")
    assert "did you mean 'budget'?" in err


def test_budgets_in_the_documentation_fit_the_schema():
    page = (REPOSITORY / "docs/check.md").read_text("utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)

    assert len(blocks) >= 3
    for block in blocks:
        validator("budget").validate(yamlfile.parse(block, "docs/check.md").data)


def test_other_yaml_readers_read_the_same():
    for _, path in files():
        assert yaml.safe_load(path.read_text("utf-8")) == yamlfile.load(path).data, path
