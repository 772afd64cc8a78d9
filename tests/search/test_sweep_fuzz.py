"""Damaged sweep files: always rows or a refusal with a message."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.conftest import REPOSITORY
from tests.fuzz.mutate import damaged_text

Run = Callable[..., tuple[int, str, str]]
SWEEPS = sorted((REPOSITORY / "tests" / "data" / "sweeps").glob("*.yaml"))
SECONDS = 3.0
MOST = 300  # combinations, so that a damaged range is not planned for minutes
PARTS = (
    "page_size: {from: 1, to: 64, factor: 2}", "page_size: {from: 5, to: 1, step: 1}",
    "tp_size: [1, 2, null]", "kv_cache_dtype: [auto, fp8_e4m3, nvfp4]", "pp_layer_partition: [1, 2]",
    "where: tokens > 5", "where: [gpus < 3, page_size in [1]]", "columns: [tokens]", "columns: []",
    "pareto: {minimise: [kv_bytes, gpus]}", "set: {model.num_layers: [1, 100000]}", "memory: {}",
    "set: {model.attention.num_kv_heads: [1, 8], gpu.sm: [75, 100]}", "draft: qwen3-8b",
    "speculative: eagle3-chain", "parallel: [tp8-dcp8, null]", "launch_file: s.yaml",
    "launch: sglang serve --model-path x --tp 4", "disaggregation_mode: [prefill, decode]",
)  # fmt: skip


def damaged_sweep(random: Random) -> str:
    text = random.choice(SWEEPS).read_text(encoding="utf-8")
    for _ in range(random.randint(0, 2)):
        lines = text.splitlines(keepends=True)
        indent = random.choice(("", "  "))
        lines.insert(random.randrange(len(lines) + 1), f"{indent}{random.choice(PARTS)}\n")
        text = "".join(lines)
    return damaged_text(text, random) if random.random() < 0.8 else text


def damaged_sweeps(run: Run, folder: Path, count: int, seed: int) -> set[int]:
    random, codes = Random(seed), set()
    file = folder / "s.yaml"
    for _ in range(count):
        text = damaged_sweep(random)
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        start = time.process_time()
        code, out, err = run("sweep", file, random.choice(("--quiet", "--json", "--no-color")))
        took = time.process_time() - start
        codes.add(code)

        assert code in (0, 1, 2), text
        assert out if code < 2 else err.startswith("error:"), (text, err)
        assert "Traceback" not in err
        assert took < SECONDS, f"{took:.1f} s: {text}"
    return codes


def test_damaged_files_are_planned_or_refused(kvplan: Run, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("kvplan.search.grid.MAX_COMBINATIONS", MOST)

    assert damaged_sweeps(kvplan, tmp_path, 1_600, seed=1) == {0, 1, 2}


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 110))
def test_many_damaged_files_are_planned_or_refused(kvplan: Run, tmp_path: Path, monkeypatch, seed):
    monkeypatch.setattr("kvplan.search.grid.MAX_COMBINATIONS", MOST)

    damaged_sweeps(kvplan, tmp_path, 10_000, seed)
