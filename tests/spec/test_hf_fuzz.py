"""Damaged configs are read or refused, never a traceback, never a hang."""

from __future__ import annotations

import contextlib
import copy
import json
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kvplan.errors import KvplanError
from kvplan.presets_import import preset_text
from kvplan.spec.hf.read import Origin, model_from_config

REMOVE = object()
ODD: list[Any] = [
    None, 0, -1, 1, True, False, "x", "", [], {}, 1.5, 10**12, 2**70, 4097, "M*E", "auto",
    [1, 2], [None], [{}], {"a": 1}, float("nan"), float("inf"), [["full_attention"]],
    ["full_attention"], ["sliding_attention"] * 5000, REMOVE,
]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_damaged_configs_are_read_or_refused_quickly(seed, shared):
    damage(shared, seed, rounds=300)


@pytest.mark.nightly
def test_many_damaged_configs_are_read_or_refused_quickly(shared):
    damage(shared, seed=99, rounds=30_000)


def damage(shared: Any, seed: int, rounds: int) -> None:
    chance = random.Random(seed)
    files = sorted((shared / "facts" / "models").glob("*.json"))
    configs = [json.loads(path.read_text())["config"] for path in files]
    for _ in range(rounds):
        config = copy.deepcopy(chance.choice(configs))
        for _ in range(chance.choice([1, 1, 2, 4])):
            replace(config, chance.choice(list(places(config)) or [()]), chance.choice(ODD))
        if chance.random() < 0.1:
            config["model_type"] = chance.choice(configs).get("model_type")
        if chance.random() < 0.1:
            config["architectures"] = chance.choice(configs)["architectures"]

        started = time.process_time()
        with contextlib.suppress(KvplanError):
            preset_text(model_from_config(config, Origin(name="damaged")))
        assert time.process_time() - started < 1, config


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of a config's keys and of the first items of its lists."""
    keys = value if isinstance(value, dict) else range(min(3, len(value)))
    for key in keys:
        yield (*path, key)
        if isinstance(value[key], dict | list):
            yield from places(value[key], (*path, key))


def replace(config: Any, path: tuple[Any, ...], value: Any) -> None:
    if not path:
        return
    for key in path[:-1]:
        config = config[key]
    if value is REMOVE:
        del config[path[-1]]
    else:
        config[path[-1]] = copy.deepcopy(value)
