"""Mutated lock files are compared or refused, never with a traceback."""

from __future__ import annotations

import copy
import json
import random

ODD: list = [
    None,
    True,
    0,
    -1,
    1,
    2.5,
    10**12,
    1e300,
    "",
    "text",
    [],
    [1, "x"],
    {},
    {"a": None},
    {"tp": {"x": []}},
]
BUDGETS = {
    "dense.yaml": "model: llama-3.1-8b\ngpu: h100\nspeculative: eagle3-llama-3.1-8b\n",
    "hybrid.yaml": "model: qwen3-next-80b-a3b\ngpu: h200\nparallel: tp4\n",
    "refused.yaml": "model: llama-3.1-8b\ngpu: t4\nrequire: {starts: false}\n",
}  # fmt: skip


def mutated(lock, chance: random.Random):
    """The lock with one to three values replaced, removed or added at any depth."""
    lock = copy.deepcopy(lock)
    if chance.random() < 0.2:
        lock["plans"]["dense.yaml"]["figures"]["tokens"] = 10**12
    for _ in range(chance.randint(1, 3)):
        place = lock
        while isinstance(place, dict) and place:
            key = chance.choice(list(place))
            if isinstance(place[key], dict) and place[key] and chance.random() < 0.85:
                place = place[key]
                continue
            match chance.randrange(4):
                case 0:
                    del place[key]
                case 1:
                    place[chance.choice(["tokens", "kv_bytes", "value", "model", "extra"])] = (
                        copy.deepcopy(chance.choice(ODD))
                    )
                case _:
                    place[key] = copy.deepcopy(chance.choice(ODD))
            break
    return lock


def test_mutated_locks(kvplan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in BUDGETS.items():
        (tmp_path / name).write_text(text)
    kvplan("check", ".", "--lock", "good.lock.json", "--update")
    good = json.loads((tmp_path / "good.lock.json").read_text())
    chance, codes = random.Random(3), set[int]()

    for number in range(600):
        path = tmp_path / f"kvplan{number % 3}.lock.json"
        path.write_text(json.dumps(mutated(good, chance)))
        argv = (
            ("check", ".", "--lock", path),
            ("check", "dense.yaml", "--lock", path, "--update", "--json"),
            ("diff", "good.lock.json", path),
        )[number % 3]
        code, out, err = kvplan(*argv)
        assert (out + err).strip()
        codes.add(code)

    assert codes == {0, 1, 2}
