"""Every number that `kvplan size` prints says where it comes from."""

from __future__ import annotations

import json

import pytest

LAUNCHES = {
    "dense": "llama-3.1-8b --gpu h100",
    "pages and a tree": "llama-3.1-8b --gpu h100 --speculative eagle3-tree --draft draft-eagle3-llama3.1-instruct-8b --page-size 16 --attention-backend triton",
    "latent": "deepseek-v3 --gpu h200 --tp 8 --speculative mtp",
    "index keys": "deepseek-v3.2 --gpu b200 --tp 8 --dp-size 8 --enable-dp-attention",
    "sliding by ratio": "gpt-oss-120b --gpu h100 --tp 2 --enable-hierarchical-cache",
    "sliding by requests": "gpt-oss-120b --gpu h100 --disable-radix-cache --max-running-requests 64 --tp 2",
    "states": "qwen3-next-80b-a3b --gpu h100 --tp 4 --speculative mtp",
    "compressed": "deepseek-v4-flash --gpu b200 --tp 8",
    "decode node": "qwen3-8b --gpu h100 --disaggregation-mode decode --max-running-requests 16",
    "stages": "nemotron-h-8b-base-8k --gpu h100 --pp-size 8",
    "swapped": "deepseek-v3.2 --gpu h200 --tp 8 --enable-hisparse --disable-radix-cache",
    "unified": "gpt-oss-20b --gpu h100 --enable-unified-memory",
    "sharded": "llama-3.1-8b --gpu h100 --tp 4 --disaggregation-mode prefill --enable-kv-cache-sharding --page-size 64 --enable-prefill-cp --attn-cp-size 2 --cp-strategy zigzag",
    "too large": "llama-3.1-70b --gpu h100",
}
WORDS = {"cell_terms", "swa_mode", "state_slots_from"}  # not numbers, or explained part by part


@pytest.mark.parametrize("name", LAUNCHES)
def test_every_number_is_explained(name, kvplan):
    code, out, err = kvplan("size", *LAUNCHES[name].split(), "--json")
    assert code in (0, 1), err
    report = json.loads(out)
    explained = {*report["resolved"], *(row[0] for row in report["origins"])}

    shown = {*report.get("pool", ()), *report["reserves"], *report["memory"]} - WORDS
    assert name == "too large" or shown - {"row_width"} <= explained
    for row in report["origins"]:
        assert all(word not in row[2] for word in ("None", "nan", "inf ")), row
    for value in report["resolved"].values():
        assert "None" not in value["from"], value


@pytest.mark.parametrize("name", LAUNCHES)
def test_every_explanation_can_be_asked_for_by_name(name, kvplan):
    code, out, _ = kvplan("size", *LAUNCHES[name].split(), "--json")
    report = json.loads(out)

    for field in (*report["resolved"], *(row[0] for row in report["origins"])):
        found, text, err = kvplan("size", *LAUNCHES[name].split(), "--explain", field)

        assert found == code, err
        assert text.startswith(f"{field} = ")
        assert ": " in text


def test_a_default_bound_is_not_called_a_flag_that_nobody_gave(kvplan):
    for launch, rule in (
        (LAUNCHES["latent"], "running-requests-speculative"),
        (LAUNCHES["compressed"], "running-requests-by-model"),
    ):
        _, out, _ = kvplan("size", *launch.split(), "--json")
        first = json.loads(out)["limits"]["requests"][0]

        assert first["bound_by"] == f"engine default ({rule})"
        _, out, _ = kvplan("size", *launch.split(), "--max-running-requests", "7", "--json")
        assert json.loads(out)["limits"]["requests"][0]["bound_by"] == "--max-running-requests"
