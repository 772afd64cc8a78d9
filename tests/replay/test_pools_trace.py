"""Real pools of every kind: all six checks hold, stamps included, and both engines agree."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

SIZES = ("--max-running-requests", "16", "--context-length", "8192")
FAMILIES = {
    "heads": ("llama-3.1-8b", "h100", "--page-size", "16"),
    "single tokens": ("llama-3.1-8b", "h100"),
    "fp8": ("llama-3.1-8b", "h100", "--kv-cache-dtype", "fp8_e4m3"),
    "mxfp8": ("llama-3.1-8b", "b200", "--kv-cache-dtype", "mxfp8", "--page-size", "64"),
    "fp4": ("llama-3.1-8b", "b200", "--kv-cache-dtype", "nvfp4"),
    "latent": ("deepseek-v2-lite", "h100"),
    "sliding": ("gpt-oss-20b", "h100", "--page-size", "16"),
    "index keys": ("deepseek-v3.2", "b200", "--tp", "8"),
    "recurrent": ("qwen3-next-80b-a3b", "h200", "--tp", "2", "--max-mamba-cache-size", "96"),
    "recurrent without overlap": (
        "falcon-h1-7b-instruct", "h100", "--disable-overlap-schedule",
        "--max-mamba-cache-size", "64",
    ),
    "compressed": ("deepseek-v4-flash", "b200", "--tp", "8"),
    "compressed in uniform rows": (
        "deepseek-v4-flash", "b200", "--tp", "8", "--dsv4-attn-backend", "trtllm",
    ),
    "context ranks": ("deepseek-v3", "b200", "--tp", "8", "--dcp-size", "4", "--page-size", "64"),
    "no cache": ("llama-3.1-8b", "h100", "--disable-radix-cache", "--page-size", "4"),
    "plain loop": ("gpt-oss-20b", "h100", "--disable-overlap-schedule"),
    "drafts": (
        "llama-3.1-8b", "h100", "--speculative", "eagle3", "--draft",
        "draft-eagle3-llama3.1-instruct-8b", "--page-size", "16",
    ),
}  # fmt: skip
TOKENS = ("--max-total-tokens", "16384")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_check_holds(kvplan, family):
    model, gpu, *flags = FAMILIES[family]
    code, out, err = kvplan(
        "trace", model, "--gpu", gpu, *flags, *SIZES, *TOKENS, "--workload", "chat",
        "--limit", "12" if family.startswith("compressed") else "40", "--device", "cpu", "--kv-scale", "--stamp", "--verify-every", "50",
        "--json",
    )  # fmt: skip
    assert code in (0, 1), err
    report = json.loads(out)

    assert [each["state"] for each in report["verification"]] == ["held"] * 6
    assert report["launch"]["engine"] == "pools"
    assert report["requests"]["finished"] > 8
    assert {each["operation"] for each in report["speed"]["allocator"]} >= {"extend", "free"}


OTHER_FORMS = {
    "unified memory": ("gpt-oss-20b", "h100", "--enable-unified-memory"),
    "shards": (
        "deepseek-v3", "h200", "--tp", "8", "--enable-kv-cache-sharding",
        "--disaggregation-mode", "prefill", "--page-size", "64", "--chunked-prefill-size", "8192",
    ),
    "request rings": ("deepseek-v4-flash", "mi300x", "--tp", "8", "--set", "dsv4_unified_kv=true"),
    "swap": ("deepseek-v3.2", "h200", "--tp", "8", "--enable-hisparse", "--disable-radix-cache"),
}  # fmt: skip


@pytest.mark.parametrize("form", OTHER_FORMS)
def test_forms_without_a_rule_are_refused_and_counted_instead(kvplan, form):
    model, gpu, *flags = OTHER_FORMS[form]
    argv = ("trace", model, "--gpu", gpu, *flags, "--workload", "chat", "--limit", "5", "--engine")

    code, out, err = kvplan(*argv, "pools", "--device", "cpu", "--kv-scale")
    assert (code, out) == (2, "")
    assert err.startswith("error: such pools are not replayed: ")
    assert "--engine accounting" in err
    assert kvplan(*argv, "accounting")[0] == 0


def test_the_kernels_in_the_interpreter_do_the_same(tmp_path):
    """In a process of its own: the interpreter is chosen before Triton is loaded."""
    done = subprocess.run(
        [
            sys.executable, "-P", "-m", "kvplan", "trace", "llama-3.1-8b", "--gpu", "h100", *SIZES,
            "--max-total-tokens", "2048", "--page-size", "16", "--workload", "code-completion",
            "--limit", "3", "--device", "interpret", "--kv-scale", "--json",
        ],
        capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)

    states = {each["name"]: each["state"] for each in report["verification"]}
    assert states.pop("every token reads back as it was written") == "not checked"
    assert set(states.values()) == {"held"}
    assert report["launch"]["device"] == "interpret"


def test_meta_compares_the_bytes_of_full_size_pools(kvplan):
    code, out, err = kvplan(
        "trace", "deepseek-v3", "--gpu", "h200", "--tp", "8", "--workload", "chat",
        "--device", "meta", "--json",
    )  # fmt: skip
    assert code == 0, err
    report = json.loads(out)

    first, *rest = report["verification"]
    assert first["state"] == "held"
    assert "GiB as built" in first["text"]
    assert {each["state"] for each in rest} == {"not checked"}


def test_full_size_pools_that_no_host_holds_are_refused(kvplan):
    code, _, err = kvplan(
        "trace", "llama-3.1-8b", "--gpu", "h100", "--workload", "chat", "--device", "cpu"
    )

    assert code == 2
    assert "--kv-scale" in err


def test_cuda_that_is_not_there_is_refused(kvplan):
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    code, _, err = kvplan(
        "trace", "llama-3.1-8b", "--gpu", "h100", "--workload", "chat", "--device", "cuda"
    )

    assert code == 2
    assert "CUDA was asked for and there is none here" in err
