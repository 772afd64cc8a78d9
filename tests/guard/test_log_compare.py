"""Published logs beside the plans of their launches: what agrees, and the cause of what does not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kvplan.guard.cause_alternatives import OF_LAYOUT, OF_MEMORY
from kvplan.guard.cause_case import READ_AGAIN_GIB
from kvplan.guard.causes import CERTAIN, ESTIMATED, LIKELY, REMARKS, UNKNOWN
from kvplan.guard.log_compare import Comparison, compare
from kvplan.guard.log_memory import measured_memory
from kvplan.guard.server_log import parse_log
from kvplan.planner import PlanInputs, plan, read_inputs
from kvplan.sizing.memory import MemoryInputs
from kvplan.sizing.plan import Plan
from kvplan.sizing.tensors import stage_tensors
from kvplan.units import GIB
from tests.conftest import REPOSITORY
from tests.guard.log_cases import ALL_CASES, CAUSES, REFUSED, figures_of
from tests.guard.log_writer import bare, coloured
from tests.public_logs import all_records, launch

pytestmark = pytest.mark.usefixtures("shared")
DECIDE_NOTHING = {"weights_gib", "avail_after_pool_gib"}


def compared(name: str, write=coloured, **changes) -> Comparison:
    """The comparison of a log written around a record's figures."""
    record = all_records()[name]
    text = write(figures_of(record), set()) + REFUSED.get(name, "")
    log = parse_log(text, "server.log")
    measured = measured_memory(log)
    made = launch(record, measured.inputs(), ALL_CASES[name], **changes)
    return compare(log, made, plan(made), measured)


def causes_of(comparison: Comparison) -> dict[str, str]:
    return {
        row.name: row.cause.name if row.cause else ""
        for row in comparison.rows
        if row.counts and not row.within
    }


@pytest.mark.parametrize("name", ALL_CASES)
def test_each_difference_has_its_cause(name):
    comparison = compared(name)
    causes = causes_of(comparison)
    differs = {figure for figure, cause in causes.items() if cause != "second_reading"}

    assert causes == CAUSES.get(name, {})
    assert comparison.agrees == (not differs)
    assert comparison.rows


@pytest.mark.parametrize("name", ALL_CASES)
def test_a_log_reads_back_to_the_published_figures(name):
    record = all_records()[name]
    figures, written = figures_of(record), set[str]()
    log = parse_log(bare(figures, written) + "\n" + REFUSED.get(name, ""), "server.log")

    assert {each: log.value(each) for each in written} == {each: figures[each] for each in written}


def test_a_refusal_agrees_with_a_plan_that_does_not_start():
    for name in REFUSED:
        comparison = compared(name)
        fractions = [row for row in comparison.rows if "fraction" in row.name]

        assert comparison.start.logged is False
        assert not comparison.start.planned
        assert len(fractions) == 2
        assert all(row.within for row in fractions)


def test_a_server_that_started_against_the_plan_differs():
    comparison = compared("sgl-003", mem_fraction_static=0.15)

    assert comparison.start.logged
    assert not comparison.start.planned
    assert not comparison.agrees
    assert comparison.start.cause is not None


@pytest.mark.parametrize(
    ("name", "changes", "figure", "cause"),
    [
        ("sgl-161", {"kv_cache_dtype": "bf16"}, "kv_gib", "kv_cache_dtype"),
        ("sgl-118", {"tp_size": 4}, "k_gib", "parallel_width"),
        ("sgl-109", {"swa_full_tokens_ratio": 0.5}, "swa_layer_tokens", "swa_ratio"),
        ("sgl-101", {"enable_multimodal": True}, "max_total_num_tokens", "image_reservation"),
        ("sgl-003", {"mem_fraction_static": 0.9}, "max_total_num_tokens", "other_process"),
        ("sgl-043", {"chunked_prefill_size": 4096}, "chunked_prefill_size", "other_argument"),
        ("sgl-003", {"context_length": 8192}, "context_len", "other_argument"),
        ("sgl-043", {"mamba_full_memory_ratio": 0.3}, "max_mamba_cache_size", "state_ratio"),
        ("sgl-043", {"mamba_full_memory_ratio": 0.3}, "max_total_num_tokens", "state_slots"),
        ("sgl-061", {"page_size": 64}, "page_size", "page_size"),
        ("sgl-042", {"mamba_ssm_dtype": "bfloat16"}, "ssm_state_gib", "state_dtype"),
    ],
)
def test_a_changed_launch_is_recognised(name, changes, figure, cause):
    comparison = compared(name, **changes)

    assert causes_of(comparison)[figure] == cause
    assert not comparison.agrees


def test_index_keys_that_a_version_kept_are_recognised():
    record, case = all_records()["sgl-161"], ALL_CASES["sgl-161"]._replace(sets=())
    log = parse_log(bare(figures_of(record), set()), "server.log")
    measured = measured_memory(log)
    made = launch(record, measured.inputs(), case)
    comparison = compare(log, made, plan(made), measured)

    assert causes_of(comparison)["kv_gib"] == "index_keys_kept"


def test_fp4_data_without_scales_is_recognised():
    figures = figures_of(all_records()["sgl-143"])
    figures |= {"k_gib": 18.48, "v_gib": 18.48}
    made = launch(all_records()["sgl-143"], MemoryInputs(), ALL_CASES["sgl-143"])
    log = parse_log(bare(figures, set()), "server.log")
    measured = measured_memory(log)
    made = msgspec.structs.replace(made, memory=measured.inputs())
    comparison = compare(log, made, plan(made), measured)

    assert {causes_of(comparison)[name] for name in ("k_gib", "v_gib")} == {"fp4_scales"}


def test_only_a_little_less_memory_is_a_second_reading():
    for name in [name for name, causes in CAUSES.items() if "second_reading" in causes.values()]:
        for row in compared(name).rows:
            if row.cause is not None and row.cause.name == "second_reading":
                missing = (row.low - row.observed) * cell_of(name) / GIB
                assert row.name != "max_total_num_tokens" or 0 < missing <= READ_AGAIN_GIB


def cell_of(name: str) -> float:
    outcome = compared(name).planned.outcome
    assert isinstance(outcome, Plan)
    return float(outcome.stages[0].pool.cell.num_bytes)


def test_figures_that_decide_nothing_are_explained_all_the_same():
    comparison = compared("sgl-175")
    rows = {row.name: row for row in comparison.rows}

    assert comparison.agrees
    assert not rows["avail_after_pool_gib"].within
    assert str(rows["avail_after_pool_gib"].cause).startswith("Cause(name='beside_the_pools'")
    assert {row.name for row in comparison.rows if not row.counts} <= DECIDE_NOTHING | {
        "max_total_num_tokens"
    }


DRAFT_LOG = """\
Load weight begin. avail mem=78.40 GB
Load weight end. type=LlamaForCausalLM, avail mem=63.40 GB, mem usage=15.00 GB.
Load weight begin. avail mem=63.40 GB
Load weight end. type=LlamaForCausalLMEagle3, avail mem=62.60 GB, mem usage=0.80 GB.
KV Cache is allocated. dtype: torch.bfloat16, #tokens: {tokens}, K size: {k} GB, V size: {k} GB
Memory pool end. avail mem=10.00 GB
max_total_num_tokens={tokens}, chunked_prefill_size=8192, max_prefill_tokens=16384, context_len=131072
"""


def test_a_draft_that_the_launch_does_not_name():
    record = all_records()["sgl-003"]
    text = DRAFT_LOG.format(tokens=400_000, k="24.41")
    log = parse_log(text, "server.log")
    measured = measured_memory(log)
    made = launch(record, measured.inputs())
    comparison = compare(log, made, plan(made), measured)

    assert measured.after is not None
    assert measured.after.gib == 62.60
    assert causes_of(comparison)["max_total_num_tokens"] == "draft_weights"


def test_readings_are_the_least_of_the_ranks_before_the_pools():
    log = parse_log(
        "[2026-01-01 00:00:00 TP0] Load weight begin. avail mem=80.00 GB\n"
        "[2026-01-01 00:00:00 TP1] Load weight begin. avail mem=79.50 GB\n"
        "[2026-01-01 00:00:01 TP0] Load weight end. type=A, avail mem=60.00 GB, mem usage=20.00 GB.\n"
        "[2026-01-01 00:00:01 TP1] Load weight end. type=A, avail mem=59.5 GB, mem usage=20.00 GB.\n"
        "[2026-01-01 00:00:02 TP0] Memory pool end. avail mem=8.00 GB\n"
        "[2026-01-01 00:00:02 TP1] Memory pool end. avail mem=8.00 GB\n"
        "[2026-01-01 00:00:03 TP0] Load weight end. type=B, avail mem=5.00 GB, mem usage=3.00 GB.\n",
        "server.log",
    )
    measured = measured_memory(log)

    assert measured.before is not None
    assert measured.after is not None
    assert (measured.before.gib, measured.before.half_digit_gib) == (79.5, 0.005)
    assert measured.after.gib == 59.5
    assert measured.after.half_digit_gib == pytest.approx(0.05)
    assert measured.inputs(1).free_after_gib == pytest.approx(59.55)
    assert measured.inputs(1).free_before_gib == pytest.approx(79.495)


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("Load weight end. type=A, avail mem=60.00 GB, mem usage=20.00 GB.", True),
        ("Load weight end. type=A, avail mem=60.00 GB", False),
        ("Load weight begin. avail mem=0.00 GB\nLoad weight end. avail mem=0.00 GB", True),
        ("Load weight begin. avail mem=10.00 GB\nLoad weight end. avail mem=60.00 GB", False),
        (f"Load weight begin. avail mem={'9' * 400} GB\nLoad weight end. avail mem=1.00 GB", False),
    ],
)
def test_memory_counts_as_measured_where_both_readings_make_sense(text, complete):
    assert measured_memory(parse_log(text, "server.log")).complete == complete


def test_a_pool_that_is_logged_in_parts_is_compared_as_a_whole():
    launch = read_inputs(
        PlanInputs(
            model="minimax-m3-nvfp4", gpu="b200", server={"tp_size": 8, "max_total_tokens": 64_000}
        )
    )
    made = plan(launch).outcome
    assert isinstance(made, Plan)
    sizes = {
        (tensor.pool, tensor.name): tensor.num_bytes / GIB
        for tensor in stage_tensors(made, made.stages[0])
    }
    lines = [
        f"MiniMax {pool} KV Cache is allocated. dtype: torch.bfloat16, #tokens: {made.tokens}, "
        f"K size: {sizes[pool, k]:.2f} GB, V size: {sizes.get((pool, v), 0.0):.2f} GB"
        for pool, k, v in (("kv", "k", "v"), ("index", "index_k", "index_v"))
    ]
    log = parse_log("\n".join(lines), "server.log")
    comparison = compare(log, launch, plan(launch), measured_memory(log))
    rows = {row.name: row for row in comparison.rows}

    assert rows["k_gib"].observed > sizes["kv", "k"]
    assert rows["k_gib"].within
    assert rows["v_gib"].within


def test_every_cause_is_documented():
    page = (REPOSITORY / "docs" / "log.md").read_text(encoding="utf-8")
    tables: list[Any] = [*CERTAIN, *LIKELY, *REMARKS, *OF_LAYOUT, *OF_MEMORY, ESTIMATED, UNKNOWN]

    assert not [each.name for each in tables if f"`{each.name}`" not in page]
