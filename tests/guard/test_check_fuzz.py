"""Mutated and invented budgets are held, broken or refused: never a traceback, never slow, always with a word."""

from __future__ import annotations

import json
import random
import time

import pytest

from tests.conftest import REPOSITORY

FOLDERS = ("tests/data/budgets", "presets/budgets")
PIECES = [
    *"\"'`{}[]<>|&#*!:,-=@%~ \t\n\r\x85é\ud7ff",
    "\n", "\n  ", "- ", ": ", "&a ", "*a", "<<: ", "---\n", "? ", "!!int ", "{{", "null", "true", "[]", "{}", "''",
    "1e9", "yes", "012", ".nan", "9" * 40, "-1", "0", "0.5", "1", "65536", "1000000000000", "2%", "-0", "1.5",
    "model: ", "gpu: ", "server: ", "memory: ", "require: ", "launch: ", "launch_file: ", "budgets: ", "draft: ",
    "parallel: ", "speculative: ", "workload: ", "no_regress: ", "launch_name: ", "require: {starts: false}\n",
    "min_tokens: ", "min_requests: ", "max_host_gib: ", "max_occupancy: ", "fits_full_context: true\n",
    "deepseek-v3", "gpt-oss-20b", "qwen3-next-80b-a3b", "deepseek-v4-flash", "gemma-3-27b-it", "h100", "b200", "t4",
    "mi300x", "tp8-pp2", "tp8-dp8", "eagle3-llama-3.1-8b", "mtp", "ngram", "serve.sh", "broken.yaml", "../x", "/etc",
    "server: {kv_cache_dtype: nvfp4}\n", "server: {enable_hierarchical_cache: true}\n",
    "server: {speculative_algorithm: EAGLE3}\n", "server: {disaggregation_mode: decode}\n",
    "server: {dcp_size: 8}\n", "server: {max_running_requests: 1}\n", "server: {mem_fraction_static: 0.001}\n",
    "memory: {free_before_gib: 1048576}\n", "memory: {weights_gib: 0}\n", "memory: {host_free_gib: 0}\n",
    "launch: python -m sglang.launch_server --model-path x --tp 2\n", "launch: sglang serve $(x)\n",
]  # fmt: skip


def mutated(text: str, chance: random.Random) -> str:
    """The text with one to five edits: cuts, insertions, swapped words, shuffled lines."""
    for _ in range(chance.randint(1, 5)):
        at, end = sorted(chance.randint(0, len(text)) for _ in range(2))
        end = min(end, at + chance.choice([0, 1, 4, 30]))
        piece = chance.choice(PIECES) * chance.choice([1, 1, 1, 1, 2, 40])
        match chance.randrange(5):
            case 0:
                text = text[:at] + text[end:]
            case 1:
                text = text[:at] + piece + text[end:]
            case 2:
                words = text.split(" ")
                words[chance.randrange(len(words))] = piece
                text = " ".join(words)
            case 3:
                lines = text.splitlines(keepends=True)
                lines.insert(chance.randint(0, len(lines)), piece)
                text = "".join(lines)
            case _:
                lines = text.splitlines(keepends=True)
                chance.shuffle(lines)
                text = "".join(lines)
    return text


CHOICES: dict[str, list] = {
    "model": ["llama-3.1-8b", "deepseek-v3", "deepseek-v3.2", "gpt-oss-20b", "qwen3-next-80b-a3b", "gemma-3-27b-it",
              "deepseek-v4-flash", "kimi-linear-48b-a3b-instruct", "minimax-m3-nvfp4", "lfm2-1.2b", "mimo-v2-flash"],
    "gpu": ["h100", "h200", "b200", "t4", "mi300x", "rtx-5090", "a100-80gb"],
    "parallel": ["tp8", "tp8-pp2", "tp8-dp8", "tp8-dcp8", "tp2", None],
    "speculative": [None, None, "mtp", "ngram", "eagle3-chain"],
    "no_regress": ["2%", "0%", "12.5 %"],
}  # fmt: skip
SERVER: dict[str, list] = {
    "page_size": [1, 16, 64, 128, 256, 3],
    "mem_fraction_static": [0.05, 0.5, 0.85, 0.95, 1],
    "context_length": [1, 100, 4096, 32768, 10**6],
    "max_running_requests": [1, 7, 256, 10**6],
    "max_total_tokens": [1, 5000, 10**7],
    "chunked_prefill_size": [-1, 256, 2048, 8192],
    "kv_cache_dtype": ["auto", "fp8_e4m3", "fp8_e5m2", "mxfp8", "nvfp4", "fp4_mx_block16"],
    "disable_radix_cache": [True, False],
    "enable_hierarchical_cache": [True],
    "hicache_size": [0, 1, 100],
    "swa_full_tokens_ratio": [0.01, 0.5, 1],
    "max_mamba_cache_size": [1, 100, 10**5],
    "disaggregation_mode": ["prefill", "decode"],
    "attention_backend": ["fa3", "triton", "trtllm_mha", "flashmla", "flashinfer"],
    "pp_size": [2, 3],
    "dp_size": [2, 8],
    "enable_dp_attention": [True],
}
MEMORY: dict[str, list] = {
    "free_before_gib": [0, 15, 78.5, 139.2],
    "free_after_gib": [0, 5, 63.5],
    "weights_gib": [0, 7.5, 80],
    "host_free_gib": [0, 1000],
}
REQUIRE: dict[str, list] = {
    "starts": [True, True, True, False],
    "fits_full_context": [True, False],
    "min_tokens": [1, 10**5, 10**9],
    "min_requests": [{"context": 4096, "requests": 10}, [{"context": 1, "requests": 60000}], []],
    "max_kv_gib": [0, 40, 10**4],
    "min_headroom_gib": [0, 10, 70],
    "max_row_width": [1, 4096, 10**7],
    "max_req_to_token_mib": [0, 100, 10**5],
    "max_host_gib": [0, 100.5, 10**5],
}


TRAFFIC: list = [
    "small.yaml",
    "gone.csv",
    {"file": "small.yaml", "max_new": "context", "tpot_ms": 1},
    {"file": "small.yaml", "requests": 3, "schedule_policy": "lpm"},
    {"file": "small.yaml", "format": "mooncake"},
]
SMALL = """
requests: 20
arrivals: {process: poisson, requests_per_s: 5.0}
input: {distribution: uniform, min: 10, max: 2000}
output: 100
"""


def invented(chance: random.Random) -> str:
    """A budget of fields that exist with values that might be meant."""
    budget = {name: chance.choice(values) for name, values in CHOICES.items()}
    for name, table, most in (
        ("server", SERVER, 5),
        ("memory", MEMORY, 2),
        ("require", REQUIRE, 5),
    ):
        fields = chance.sample(list(table), chance.randint(0, most))
        budget[name] = {field: chance.choice(table[field]) for field in fields}
    if chance.random() < 0.15:
        budget["workload"] = chance.choice(TRAFFIC)
        budget["require"]["no_retractions"] = True
    return json.dumps(budget)


def samples() -> list[str]:
    """Every budget of the repository."""
    return [
        path.read_text("utf-8")
        for folder in FOLDERS
        for path in sorted((REPOSITORY / folder).glob("*.y*ml"))
    ]


def run_mutated(kvplan, tmp_path, rounds: int, seed: int) -> set[int]:
    """Exit codes of so many mutated files; every run says something and takes less than a second of a core."""
    chance, texts = random.Random(seed), samples()
    (tmp_path / "serve.sh").write_text((REPOSITORY / FOLDERS[0] / "serve.sh").read_text())
    (tmp_path / "small.yaml").write_text(SMALL)
    path, lock = tmp_path / "budget.yaml", tmp_path / "kvplan.lock.json"
    options: tuple[list, ...] = (
        [],
        ["--format", "github"],
        ["--json"],
        ["--lock", lock, "--update"],
        ["--lock", lock],
    )
    codes = set()
    for number in range(rounds):
        text = invented(chance) if number % 3 else mutated(chance.choice(texts), chance)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        started = time.process_time()
        code, out, err = kvplan("check", path, *options[number % len(options)])
        assert time.process_time() - started < 1
        assert code in {0, 1, 2}, path.read_bytes()
        assert (out + err).strip()
        codes.add(code)
    return codes


def test_mutated_budgets(kvplan, tmp_path):
    assert run_mutated(kvplan, tmp_path, 3000, seed=1) == {0, 1, 2}


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_mutated_budgets(kvplan, tmp_path, seed):
    run_mutated(kvplan, tmp_path, 5000, seed)
