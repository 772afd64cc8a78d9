"""Sources made of odd pieces are compared or refused, never with a traceback."""

from __future__ import annotations

import random

import pytest

PIECES = [
    "llama-3.1-8b", "gpt-oss-20b", "meta-llama/Llama-3.1-8B", "@", "@h100", "@t4", "@@", "#", "#a", ",", ",page_size=16",
    ",page_size=", ",=1", ",server.page_size=[1,2]", ",model.num_layers=0", ",model.attention.kind=mla",
    ",model.attention={kind: mla, kv_lora_rank: 5, qk_rope_head_dim: 1}", ",gpu.memory_mib=1024", ",gpu.sm=null",
    ",memory.weights_gib=1", ",memory.free_after_gib=1e9", ",draft.num_layers=1", ",speculative_algorithm=NGRAM",
    ",tp_size=65536", ",mem_fraction_static=1", ",a.b.c=1", "plan.yaml", "several.yaml", "settings.yaml", "run.sh",
    "plan.lock.json", "empty.yaml", "list.yaml", "config.json", "x.log", ".", "..", "/", "\0", "é", " ", "",
]  # fmt: skip
FILES = {
    "plan.yaml": "model: llama-3.1-8b\ngpu: h100\n",
    "several.yaml": "budgets:\n  a: {model: qwen3-8b, gpu: h100}\n  b: {gpu: h100}\n",
    "settings.yaml": "page_size: 16\n",
    "run.sh": "sglang serve --model-path meta-llama/Llama-3.1-8B --tp 2\n",
    "plan.lock.json": '{"schema": "kvplan.lock/1", "engine": "", "models": {}, "gpus": {}, "plans": {}}',
    "empty.yaml": "",
    "list.yaml": "- a\n",
    "config.json": "[]",
    "x.log": "nothing\n",
}


@pytest.mark.parametrize("seed", [1, 2])
def test_odd_sources(kvplan, tmp_path, monkeypatch, seed):
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    chance, codes = random.Random(seed), set[int]()

    for number in range(600):
        sides = ["".join(chance.choices(PIECES, k=chance.randint(1, 4))) for _ in range(2)]
        if number % 2:
            sides = [
                f"llama-3.1-8b@h100{chance.choice(PIECES)}",
                f"qwen3-8b@l4{''.join(chance.choices(PIECES, k=2))}",
            ]
        options = chance.choice(
            [[], ["--json"], ["--gpu", "h100", "--model", "llama-3.1-8b"], ["-q", "--exit-code"]]
        )
        code, out, err = kvplan("diff", *options, "--", *sides)
        assert (out + err).strip(), sides
        codes.add(code)

    assert codes == {0, 1, 2}
