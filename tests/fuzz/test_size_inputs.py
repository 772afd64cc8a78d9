"""Damaged models, configs and arguments: always an answer or a refusal with a message."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.conftest import REPOSITORY
from tests.fuzz.mutate import TOKENS, damaged_text, damaged_value

Run = Callable[..., tuple[int, str, str]]
MODELS = sorted((REPOSITORY / "presets" / "models").glob("*.yaml"))
SECONDS = 2.0  # one input never takes longer, whatever the machine is busy with
FLAGS = {
    "--tp-size": ("1", "2", "8", "3", "64"),
    "--pp-size": ("1", "2", "7", "200"),
    "--dp-size": ("1", "8"),
    "--page-size": ("1", "16", "64", "128", "256", "7"),
    "--mem-fraction-static": ("0.5", "0.9", "0.001", "1.0", "2"),
    "--context-length": ("1", "4096", "1000000"),
    "--kv-cache-dtype": ("auto", "fp8_e4m3", "fp8_e5m2", "mxfp8", "nvfp4", "bf16"),
    "--max-running-requests": ("1", "100", "1000000"),
    "--max-total-tokens": ("1", "1000", "100000000"),
    "--chunked-prefill-size": ("-1", "2048", "8192", "0"),
    "--speculative-algorithm": ("EAGLE", "EAGLE3", "NEXTN", "NGRAM", "STANDALONE", "DFLASH", "UNO"),
    "--speculative-eagle-topk": ("1", "4", "0"),
    "--speculative-num-steps": ("1", "5"),
    "--speculative-num-draft-tokens": ("2", "64"),
    "--attention-backend": ("fa3", "flashinfer", "triton", "trtllm_mha", "flashmla"),
    "--mamba-full-memory-ratio": ("0.1", "0.9", "9"),
    "--swa-full-tokens-ratio": ("0.01", "0.5", "1.0"),
    "--disaggregation-mode": ("prefill", "decode"),
    "--enable-dp-attention": ("",),
    "--disable-radix-cache": ("",),
    "--disable-overlap-schedule": ("",),
    "--enable-hierarchical-cache": ("",),
    "--hicache-size": ("10", "0"),
    "--dcp-size": ("1", "2", "8"),
    "--set": ("page_size=16", "model.num_layers=1", "gpu.memory_mib=4096", "model.linear={}"),
}
GPUS = ("h100", "b200", "t4", "mi300x", "rtx-5090")


def check(run: Run, *argv: str) -> None:
    start = time.process_time()
    code, out, err = run(*argv)
    took = time.process_time() - start

    assert code in (0, 1, 2), (shlex.join(argv), code, err)
    assert out if code < 2 else err.startswith(("error:", "Usage:")), (argv, code, out, err)
    assert "Traceback" not in err
    assert took < SECONDS, f"{took:.1f} s: {shlex.join(argv)}"


def damaged_models(run: Run, folder: Path, count: int, seed: int) -> None:
    random = Random(seed)
    for _ in range(count):
        text = damaged_text(random.choice(MODELS).read_text(encoding="utf-8"), random)
        file = folder / "model.yaml"
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        check(run, "size", str(file), "--gpu", random.choice(GPUS), "--quiet")


def damaged_configs(run: Run, folder: Path, shared: Path, count: int, seed: int) -> None:
    random = Random(seed)
    configs = [
        json.loads(file.read_text())["config"]
        for file in sorted((shared / "facts" / "models").glob("*.json"))
    ]
    for _ in range(count):
        config = damaged_value(random.choice(configs), random)
        text = json.dumps(config)
        if random.random() < 0.2:
            text = damaged_text(text, random)
        file = folder / "config.json"
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        argv = ["size", str(file), "--gpu", random.choice(GPUS), "--weights-gib", "5", "--quiet"]
        check(run, *argv)


def damaged_arguments(run: Run, count: int, seed: int) -> None:
    random = Random(seed)
    names = [file.stem for file in MODELS]
    for _ in range(count):
        argv = ["size", random.choice(names), "--gpu", random.choice(GPUS), "--quiet"]
        for flag in random.sample(sorted(FLAGS), random.randint(1, 6)):
            value = random.choice(FLAGS[flag])
            if random.random() < 0.15:
                value = random.choice(TOKENS).replace("\x00", "")
            if random.random() < 0.05:
                flag = damaged_text(flag, random).replace("\x00", "")
            argv += [flag, value] if value else [flag]
        check(run, *argv)


def test_damaged_model_files_are_refused_or_sized(kvplan: Run, tmp_path: Path):
    damaged_models(kvplan, tmp_path, 3_500, seed=1)


def test_damaged_configs_are_refused_or_sized(kvplan: Run, tmp_path: Path, shared: Path):
    damaged_configs(kvplan, tmp_path, shared, 3_500, seed=2)


def test_damaged_arguments_are_refused_or_sized(kvplan: Run):
    damaged_arguments(kvplan, 3_000, seed=3)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 120))
def test_much_damage_is_refused_or_sized(kvplan: Run, tmp_path: Path, shared: Path, seed: int):
    damaged_models(kvplan, tmp_path, 10_000, seed)
    damaged_configs(kvplan, tmp_path, shared, 10_000, seed)
    damaged_arguments(kvplan, 10_000, seed)
