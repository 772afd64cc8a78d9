"""Each row is what planning its launch alone gives, and says why where there is no plan."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from kvplan.errors import CombinationError, InputError
from kvplan.guard.figures import figures
from kvplan.overrides import parse_override
from kvplan.planner import PlanInputs, plan, read_inputs
from kvplan.search.columns import find_result
from kvplan.search.read_sweep import read_sweep
from kvplan.search.rows import Planner
from kvplan.sizing.capacity import capacity_at
from kvplan.sizing.memory import MemoryInputs
from kvplan.sizing.plan import Plan
from tests.conftest import REPOSITORY

SWEEPS = REPOSITORY / "tests" / "data" / "sweeps"


def table(file: Path) -> list[dict]:
    sweep = read_sweep(file)
    names = [column.name for column in sweep.planned_columns]
    return [dict(zip(names, row, strict=True)) for row in Planner(sweep).rows(0, sweep.grid.count)]


def expected(inputs: PlanInputs, sets: tuple[str, ...] = ()):
    """Status, reason and plan of one launch by the way of `kvplan size`."""
    try:
        planned = plan(read_inputs(inputs, [parse_override(text) for text in sets]))
    except CombinationError as error:
        return "refused", error.problem, None
    except InputError as error:
        return "invalid", error.problem, None
    if not isinstance(planned.outcome, Plan):
        return "no_memory", planned.outcome.shortage.problem, None
    return "starts", None, planned.outcome


def given(**values):
    return {name: value for name, value in values.items() if value is not None}


def test_widths_are_planned_as_size_plans_them():
    rows = iter(table(SWEEPS / "widths.yaml"))
    axes = (
        ["llama-3.1-8b", "qwen3-next-80b-a3b"],
        ["h100", "h200"],
        [1, 2, 4],
        [1, 16],
        [0.84, 0.87, 0.9],
    )
    for model, gpu, tp, page, fraction in itertools.product(*axes):
        if tp * page == 32:
            continue
        server = {"tp_size": tp, "page_size": page, "mem_fraction_static": fraction}
        status, reason, sized = expected(PlanInputs(model=model, gpu=gpu, server=server))
        row = next(rows)

        assert (row["model"], row["gpu"], row["tp_size"]) == (model, gpu, tp)
        assert (row["page_size"], row["mem_fraction_static"]) == (page, fraction)
        assert (row["status"], row["reason"]) == (status, reason)
        assert row["tokens"] == (sized and sized.tokens)
        assert row["running_requests"] == (sized and sized.max_running_requests)
        assert row["gpus"] == (sized and tp)

    assert next(rows, None) is None


def test_presets_drafts_and_memory_are_planned_as_size_plans_them():
    rows = iter(table(SWEEPS / "presets.yaml"))
    seen = set()
    axes = (
        [None, "tp4", "tp8-dp8"],
        [None, "eagle3-llama-3.1-8b"],
        [None, "draft-llama3-8b-eagle3"],
        ["auto", "fp8_e4m3"],
        [62.5, 4.0],
    )
    for parallel, speculative, draft, dtype, after in itertools.product(*axes):
        inputs = PlanInputs(
            model="llama-3.1-8b",
            gpu="h100",
            parallel=parallel,
            speculative=speculative,
            draft=draft,
            server={"kv_cache_dtype": dtype},
            memory=MemoryInputs(free_before_gib=78.8, free_after_gib=after),
        )
        status, reason, sized = expected(inputs)
        if sized is not None and sized.tokens < 100_000:
            status, reason = "left_out", "not tokens >= 100000"
        row = next(rows)
        seen.add(status)

        assert (row["parallel"], row["speculative"], row["draft"]) == (parallel, speculative, draft)
        assert (row["status"], row["reason"]) == (status, reason)
        assert row["tp_size"] == {None: None, "tp4": 4, "tp8-dp8": 8}[parallel]
        if sized is not None:
            ranks = 8 if parallel == "tp8-dp8" else 1
            assert row["tokens"] == sized.tokens
            assert row["total_tokens"] == sized.tokens * ranks
            assert row["total_running_requests"] == sized.max_running_requests * ranks
            assert row["requests_at_8192"] == capacity_at(sized, 8192).requests
            assert row["kv_bytes"] == figures(sized)["kv_bytes"]
            assert row["resolved_page_size"] == sized.resolved.page_size

    assert next(rows, None) is None
    assert seen == {"starts", "invalid", "no_memory"}


def test_changed_models_and_cards_are_planned_as_set_plans_them():
    rows = iter(table(SWEEPS / "variants.yaml"))
    seen = set()
    axes = (
        ["h100", "l40s"],
        [(1, 2, 4), (1, 2, 4, 8)],
        [None, {"prefill": {"backend": "disabled"}}],
        ["fa3", "flashmla", "trtllm_mha"],
        [36, 48],
        [40960, 81920],
    )
    for gpu, sizes, graphs, backend, layers, memory in itertools.product(*axes):
        server = given(
            cuda_graph_bs_decode=sizes, cuda_graph_config=graphs, attention_backend=backend
        )
        sets = (f"model.num_layers={layers}", f"gpu.memory_mib={memory}")
        status, reason, sized = expected(PlanInputs(model="qwen3-8b", gpu=gpu, server=server), sets)
        row = next(rows)
        seen.add(status)

        assert (row["model.num_layers"], row["gpu.memory_mib"]) == (layers, memory)
        assert (row["status"], row["reason"]) == (status, reason)
        assert row["tokens"] == (sized and sized.tokens)
        assert row["token_bytes"] == (sized and figures(sized)["token_bytes"])
        assert row["resolved_attention_backend"] == (sized and sized.resolved.attention_backend)

    assert next(rows, None) is None
    assert seen == {"starts", "refused"}


def test_replicas_count_as_gpus_and_hold_tokens_of_their_own(tmp_path: Path):
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "model: llama-3.1-8b\ngpu: h100\nserver: {tp_size: 2, pp_size: [1, 2], dp_size: [1, 3]}\n"
        "columns: [tokens, total_tokens, gpus, tokens_per_gpu]\n"
    )

    rows = table(file)

    assert [row["gpus"] for row in rows] == [2, 6, 4, 12]
    assert [row["total_tokens"] // row["tokens"] for row in rows] == [1, 3, 1, 3]
    assert rows[1]["tokens_per_gpu"] == rows[1]["total_tokens"] / 6


def test_a_change_that_no_model_can_have_is_refused_at_its_line(tmp_path: Path):
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "model: qwen3-next-80b-a3b\ngpu: h200\n"
        "set:\n  model.linear.full_attention_layers: {values: [[3], [50]]}\n"
    )

    with pytest.raises(InputError, match=r"sweep.yaml:4:54: qwen3-next-80b-a3b: .*names layer 50"):
        read_sweep(file)


def test_changes_that_exclude_each_other_are_an_invalid_row(tmp_path: Path):
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "model: qwen3-8b\ngpu: h200\nset:\n"
        "  model.attention:\n"
        "    - {kind: mha, num_kv_heads: 8, head_dim: 128, v_head_dim: 128}\n"
        "    - {kind: mla, kv_lora_rank: 512, qk_rope_head_dim: 64}\n"
        "  model.sparse: [null, {dense_layers: [0], sparse_layers: [1], index_head_dim: 64}]\n"
    )

    rows = table(file)

    assert [row["status"] for row in rows] == ["starts", "starts", "starts", "invalid"]
    assert "'sparse' needs attention of kind mha" in rows[3]["reason"]
    assert rows[2]["model.attention"] == '{"kind":"mla","kv_lora_rank":512,"qk_rope_head_dim":64}'


@pytest.mark.parametrize("name", ["tokens", "kv_bytes", "requests_at_100", "resolved_page_size"])
def test_only_asked_columns_are_there(tmp_path: Path, name: str):
    file = tmp_path / "sweep.yaml"
    file.write_text(
        f"model: llama-3.1-8b\ngpu: [h100, h200]\ncolumns: [{name}]\npareto: {{maximise: tokens}}\n"
    )

    assert list(table(file)[0]) == list(dict.fromkeys(["gpu", "status", name, "tokens", "reason"]))


def test_the_documented_results_are_columns():
    page = (REPOSITORY / "docs" / "sweep.md").read_text()
    rows = page.partition("| result | meaning |")[2].partition("\n\n")[0].splitlines()[2:]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]

    assert len(named) > 20
    for name in named:
        assert find_result(name.replace("_N", "_4096")) is not None, name
